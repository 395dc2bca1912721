"""Recognises task files of SkyPilot and dstack, and converts them to a job file and a list of what it lacks."""
