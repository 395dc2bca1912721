"""Jobs in the engine: their states, failures, checkpoints, and the instructions for their trainers."""
