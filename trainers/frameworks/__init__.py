"""Training frameworks with their own training loop: one line makes their runs movable. Each needs its library."""
