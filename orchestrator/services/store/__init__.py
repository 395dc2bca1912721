"""Store operations for users: checks, backups, ledger corrections."""
