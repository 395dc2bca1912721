"""Inputs of a decision: what the store knows, as values for the policy."""
