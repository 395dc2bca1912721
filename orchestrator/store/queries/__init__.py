"""What can be asked of the store, and written to it, in one transaction; a module per noun."""
