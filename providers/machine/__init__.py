"""Programs that run on rented cloud machines besides the agent, the same for all clouds."""
