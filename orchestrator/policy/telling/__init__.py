"""Telling: a decision as a Placement, its alternatives, and the words for both."""
