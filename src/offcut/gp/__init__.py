"""Gaussian process densities and intensities."""
