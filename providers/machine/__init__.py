"""What runs on rented machines of clouds, besides the agent: the same for all of them."""
