"""Prices: from what sources report to what may be paid and chosen."""
