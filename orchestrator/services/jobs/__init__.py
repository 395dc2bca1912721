"""Operations on jobs for users: plan, submit, follow, command, fetch."""
