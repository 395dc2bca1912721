"""What each view looks like: one module per kind of thing, functions from a view to text."""
