"""Prices: status, history, collection, and accepting implausible ones."""
