"""A generated fleet for `tradewind dashboard --demo`: simulated jobs, prices and costs of three months."""
