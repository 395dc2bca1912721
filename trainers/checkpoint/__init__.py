"""trainers.checkpoint: format v1 (docs: trainers.checkpoint.store). Chunks by hash, manifest last, fences.

`store` and `manifest` need neither torch nor numpy; `state`, `writer` and `reader` do.
"""
