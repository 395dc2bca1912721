"""The conformance kit: tests of the contract in providers.base, for any provider to inherit.

    class TestMine(ProviderContract):
        offer_id = "mine/region/zone/type/on_demand"
        def connect(self): return MineProvider(...)     # a new client of the same cloud, each time
        def now_ms(self): ...
        def advance(self, market_s): ...

The tests are plain asserts in methods named test_*, which pytest collects; pytest is not imported. Each test needs a
cloud that has no instances yet (use a fresh account, or a fresh tag through `install`). Where machines need networks,
those of `install` have been set up before.
"""

from providers.testing.contract import ProviderContract

__all__ = ["ProviderContract"]
