"""Prices: from what sources say to what may be paid and chosen."""
