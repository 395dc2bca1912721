"""Billing: what machines cost, into the ledger; limits on spending; comparisons when the books close."""
