"""What machines cost there. Knows prices; rents nothing."""
