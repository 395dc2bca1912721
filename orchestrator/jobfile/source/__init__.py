"""Reads a job file: text or mapping to plain values, each with its place in the text."""
