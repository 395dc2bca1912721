"""Backups of a store, and finding out what is wrong with one."""
