"""Reads and writes of the store within one transaction; one module per kind of row."""
