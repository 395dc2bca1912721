"""The program that a job file names, checked by its source alone: nothing is imported or run."""
