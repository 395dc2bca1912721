"""Task files of SkyPilot and dstack: recognised, and turned into a job file with a list of what is not in it."""
