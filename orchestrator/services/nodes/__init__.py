"""Nodes: the machines that are up, what they cost, and what they last reported."""
