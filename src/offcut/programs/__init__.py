"""Traced and compiled programs: what they depend on, told apart, kept; precision and processes."""
