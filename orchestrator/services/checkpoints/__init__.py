"""Lists, verifies, prunes and exports the checkpoints of a job, for users."""
