"""What providers bill besides machine time, and the list prices of moving bytes."""
