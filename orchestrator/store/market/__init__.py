"""The market in the store: offers, prices and their flags, polls, and what became of launches."""
