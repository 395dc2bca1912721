"""The main job, end to end: what `make demo` runs."""
