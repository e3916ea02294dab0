"""Samplers of rejection models: Algorithm 2, conjugate, direct, exchange and pseudo-marginal."""
