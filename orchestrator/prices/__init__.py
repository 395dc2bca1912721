"""Prices: turns the reports of price sources into prices that may be paid and chosen."""
