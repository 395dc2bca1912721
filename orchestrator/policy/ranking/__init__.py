"""Ranking: estimates the cost and time of a job on each offer, finds the offers that it may use, and orders them. Works
on arrays."""
