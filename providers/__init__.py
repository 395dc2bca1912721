"""providers: the market and the machines. Knows clouds and prices.

The contract is providers.base; providers.registry finds who keeps it.
"""
