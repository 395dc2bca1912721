"""Checkpoints, format v1: chunks by hash, the manifest last, fences (see trainers.checkpoint.store).

`store` and `manifest` need neither torch nor numpy; `state`, `writer` and `reader` do.
"""
