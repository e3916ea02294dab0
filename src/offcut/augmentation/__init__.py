"""Algorithm 1 (draw the rejected proposals) and the joint density that they make tractable.

Drawing what the data do not say: censored values, and true values behind noisy ones.
"""
