"""The market in the store: offers, prices, flags, polls and the results of launches."""
