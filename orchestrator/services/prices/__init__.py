"""Prices: status, history and collection, and accepting implausible prices."""
