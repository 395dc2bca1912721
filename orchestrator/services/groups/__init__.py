"""Groups of jobs: planned together and submitted together."""
