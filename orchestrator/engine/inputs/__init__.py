"""Inputs: reads the policy's inputs for a decision from the store."""
