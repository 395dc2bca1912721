"""providers: offers, prices and machines of clouds.

The contract is in providers.base; providers.registry finds the installed providers.
"""
