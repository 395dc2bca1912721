"""Inputs: reads from the store what the policy needs for a decision."""
