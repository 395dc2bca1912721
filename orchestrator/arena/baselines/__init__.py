"""Baselines: other people's policies as tick policies, re-implemented from their papers, documents or sources."""
