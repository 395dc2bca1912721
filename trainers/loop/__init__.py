"""The training loop: a session that restores, saves and obeys, and all state that a step can touch."""
