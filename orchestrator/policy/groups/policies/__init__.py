"""The policies, each a small module that states its formulation and its source."""
