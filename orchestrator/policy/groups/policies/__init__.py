"""The policies. Each is a small module that states its formulation and its source."""
