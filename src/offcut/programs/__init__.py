"""Traced and compiled programs: dependencies, identity, cache; precision and forks."""
