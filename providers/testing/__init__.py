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

from providers.testing.account import Account
from providers.testing.ending import Ending
from providers.testing.launching import Launching
from providers.testing.paying import Paying

__all__ = ["ProviderContract"]


class ProviderContract(Launching, Ending, Paying, Account):
    """Inherit from this class and implement its hooks; override the attributes where the defaults do not fit.

    `offer_id` must be an offer that has capacity and is not preempted during the test. `step_s` (market seconds) is the
    interval of polling; a test fails after 400 intervals. `late_s` is for a cloud that bills a machine which has ended
    by itself until the next call about it: how long (market seconds) that takes in these tests.
    """
