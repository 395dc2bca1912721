"""Access: credentials for the store, limited to one job, which are lent to machines and renewed in time."""
