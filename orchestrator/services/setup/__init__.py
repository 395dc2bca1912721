"""Setup: the three answers of `tradewind init`, the resulting settings file, and the cost of a first job."""
