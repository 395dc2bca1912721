"""Machines in the engine: what providers offer and report, and how machines are ended."""
