"""Checks the program that a job file names by its source only: nothing is imported or run."""
