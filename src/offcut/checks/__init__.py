"""Checks of models, priors, data and finished runs; comparison of samplers."""
