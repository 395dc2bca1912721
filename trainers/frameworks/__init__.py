"""Training frameworks with a loop of their own: one line makes their runs movable. Each needs its library."""
