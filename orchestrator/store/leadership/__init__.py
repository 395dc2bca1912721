"""Who leads: which control plane may act on a store, and how it shows that it lives."""
