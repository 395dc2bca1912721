"""Leader election: which control plane may act on a store, and its heartbeat."""
