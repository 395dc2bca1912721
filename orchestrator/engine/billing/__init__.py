"""Billing: books what machines cost, enforces spending limits, and compares a job's cost when it is fully booked."""
