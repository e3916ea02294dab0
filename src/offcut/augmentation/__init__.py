"""Algorithm 1 (draw the rejected proposals) and the joint density that they make tractable.

algorithm1 : proposals until enough are accepted. rejections : the buffer of Y, the redraw under a
budget. joint : sums over X and Y. hidden, first_values, impute : what the data do not say, censored
values and true values behind noisy ones.
"""
