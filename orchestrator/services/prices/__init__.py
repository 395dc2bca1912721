"""Prices for people and for the control plane: how fresh they are, how they went, collecting and accepting them."""
