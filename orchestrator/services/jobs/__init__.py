"""Job operations for users: plan, submit, follow, command, fetch."""
