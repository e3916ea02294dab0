"""The driver: runs any sampler's chains side by side, with progress, checkpoints and a budget."""
