"""Access: credentials for the store, limited to one job, that machines are lent and that are renewed in time."""
