"""Orthonormal frames: the matrix Langevin distribution on the Stiefel manifold."""
