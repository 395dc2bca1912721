"""Ranking: what each offer would cost and take, which are eligible, and their order. Works on arrays."""
