"""The training loop: a session that restores, saves and follows orders, and everything a training step may change."""
