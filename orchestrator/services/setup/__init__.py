"""Setup: the three answers of `tradewind init`, the settings file made of them, and what a first job would cost."""
