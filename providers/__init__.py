"""providers: the market and the machines. Knows clouds and prices.

Must not know: jobs, training, stores. The contract is providers.base; providers.registry finds who keeps it.
"""
