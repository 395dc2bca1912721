"""Prices: from what sources say to what may be paid and chosen. Must not know: jobs, machines, the engine."""
