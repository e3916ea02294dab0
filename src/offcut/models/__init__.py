"""Models: what a user writes down. Each is unbatched; the engine vectorises."""
