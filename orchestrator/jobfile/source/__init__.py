"""A job file as written: text or mapping to plain values, each with its place in the text."""
