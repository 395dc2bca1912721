"""The demo, end to end: what `make demo` runs."""
