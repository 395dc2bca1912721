"""The value of slack: under a deadline, when to wait for spot capacity, when to use it, and when to rent on-demand."""
