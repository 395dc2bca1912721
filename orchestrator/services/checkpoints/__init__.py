"""A job's checkpoints, for people: listed, verified, pruned and exported."""
