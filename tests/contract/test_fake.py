"""The fake cloud keeps the contract of providers.base."""

from dataclasses import replace

from providers.base import Provider
from providers.clock import VirtualClock
from providers.fake import Behaviour, FakeCloud, FakeProvider
from providers.fake.faults import Fault, Faults
from providers.testing import ProviderContract


class FakeContract(ProviderContract):
    offer_id = "fake/alpha/alpha-1/v100.1/on_demand"
    other_offer_id = "fake/beta/beta-2/h100.1/on_demand"
    next_door = "fake/alpha/alpha-2/v100.1/on_demand"
    other_type = "fake/alpha/alpha-1/h100.1/on_demand"
    behaviour = Behaviour(most_offers=2, mixes_types=True)

    def setup_method(self) -> None:
        self.clock = VirtualClock()
        self.cloud = FakeCloud(self.clock, seed=5, behaviour=self.behaviour)
        self.faults = Faults()

    def connect(self) -> Provider:
        return FakeProvider(self.clock, cloud=self.cloud, faults=self.faults)

    def limit_capacity(self, machines: int) -> bool:
        self.cloud.set_capacity(self.offer_id, machines)
        return True

    def limit_capacity_next_door(self, machines: int) -> bool:
        self.cloud.set_capacity(self.next_door, machines)
        return True

    def limit_capacity_of_other_type(self, machines: int) -> bool:
        self.cloud.set_capacity(self.other_type, machines)
        return True

    def limit_quota(self, machines: int) -> bool:
        self.cloud.behaviour = replace(self.cloud.behaviour, max_instances=machines)
        return True

    def refuse_together(self) -> bool:
        self.cloud.behaviour = replace(self.cloud.behaviour, not_together=True)
        return True

    def lose_reply(self, call: str) -> bool:
        self.faults.inject(call, Fault.LOST_REPLY)
        return True

    def announce_end(self, instance_id: str) -> bool:
        self.cloud.preempt(instance_id, 120.0)
        return True

    def take_away(self, instance_id: str) -> bool:
        self.cloud.preempt(instance_id, 0.0)
        return True

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.clock.advance(market_s)


class TestFake(FakeContract):
    pass


class TestFakeThatIsSlowAndForgetful(FakeContract):
    offer_id = "fake/beta/beta-2/h100.1/spot"
    next_door = "fake/beta/beta-1/h100.1/spot"
    other_type = "fake/beta/beta-1/v100.1/spot"
    behaviour = Behaviour(
        boot_s=300.0,
        listing_lag_s=120.0,
        stop_s=90.0,
        drift_s=600.0,
        max_instances=3,
        forget_s=3600.0,
        most_offers=2,
    )
