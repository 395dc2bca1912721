"""Replay: jobs decided by the live policy and by simple rules on recorded prices, with synthetic spot capacity."""
