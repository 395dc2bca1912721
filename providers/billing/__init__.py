"""What providers bill: machine time aside, each charge, and the list prices of moving bytes."""
