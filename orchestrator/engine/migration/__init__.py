"""Migration: the state machine that starts a job's next run and ends the one before it."""
