"""Explanation: turns a decision into a Placement with its alternatives, and explains it in words."""
