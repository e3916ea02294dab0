"""Truncated Dirichlet process mixtures, and one partition that stands for their draws."""
