"""What a user does with jobs: plan, submit, follow, command, fetch."""
