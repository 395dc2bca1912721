"""Jobs in the engine: their states, failures, checkpoints, and what their trainers are told."""
