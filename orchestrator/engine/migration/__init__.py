"""Migration: the state machine that brings a job's next run up and lets the one before it go."""
