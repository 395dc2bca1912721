"""The fake cloud keeps the contract of providers.base."""

from providers.base import Provider
from providers.clock import VirtualClock
from providers.fake import Behaviour, FakeCloud, FakeProvider
from providers.testing import ProviderContract


class FakeContract(ProviderContract):
    offer_id = "fake/alpha/alpha-1/v100.1/on_demand"
    behaviour = Behaviour()

    def setup_method(self) -> None:
        self.clock = VirtualClock()
        self.cloud = FakeCloud(self.clock, seed=5, behaviour=self.behaviour)

    def connect(self) -> Provider:
        return FakeProvider(self.clock, cloud=self.cloud)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.clock.advance(market_s)


class TestFake(FakeContract):
    pass


class TestFakeThatIsSlowAndForgetful(FakeContract):
    offer_id = "fake/beta/beta-2/h100.1/spot"
    behaviour = Behaviour(
        boot_s=300.0, listing_lag_s=120.0, stop_s=90.0, drift_s=600.0, max_instances=3, forget_s=3600.0
    )
