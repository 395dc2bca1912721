"""The value of slack: when to wait for spot capacity, when to use it, and when to buy on demand, under a deadline."""
