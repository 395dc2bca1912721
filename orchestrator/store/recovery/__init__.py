"""Backing up, restoring and checking a store."""
