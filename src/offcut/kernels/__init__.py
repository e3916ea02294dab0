"""Kernels for theta: how the parameters move, given the rejected proposals or without them."""
