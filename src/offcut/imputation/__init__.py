"""Drawing what the data do not say: censored values, and true values behind noisy ones."""
