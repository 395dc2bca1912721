"""The local cloud keeps the contract of providers.base, with real processes that do what Ray's do."""

import time
from pathlib import Path

import pytest

from providers.base import Provider
from providers.clock import VirtualClock
from providers.local import LocalProvider
from providers.testing import ProviderContract


class TestLocal(ProviderContract):
    offer_id = "local/north/north-a/sim.small/on_demand"
    # One child in a process group of its own, one in a session of its own; none of them heeds SIGTERM.
    user_data = "trap '' TERM\nset -m\nsleep 1000 &\nsetsid sleep 1000 &\nset +m\nexec sleep 1000\n"
    step_s = 1.0

    @pytest.fixture(autouse=True)
    def _cloud(self, tmp_path: Path):
        self.folder = tmp_path / "local"
        self.clock = VirtualClock()
        yield
        assert LocalProvider(self.folder, self.clock, 3).processes_left() == []

    def connect(self) -> Provider:
        return LocalProvider(self.folder, self.clock, 3, background_preemptions=False)

    def limit_capacity(self, machines: int) -> bool:
        LocalProvider(self.folder, self.clock, 3).set_capacity(self.offer_id, machines, self.now_ms() + 86_400_000)
        return self.offer_id.endswith("/spot")

    def announce_end(self, instance_id: str) -> bool:
        LocalProvider(self.folder, self.clock, 3).preempt(instance_id, 120.0)
        return True

    def take_away(self, instance_id: str) -> bool:
        LocalProvider(self.folder, self.clock, 3).preempt(instance_id, 0.0)
        return True

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.clock.advance(market_s)
        time.sleep(0.002)  # market time is virtual here, but the machines are real and boot in wall time


class TestLocalSpot(TestLocal):
    offer_id = "local/west/west-b/sim.large/spot"

    def connect(self) -> Provider:
        provider = LocalProvider(self.folder, self.clock, 3, background_preemptions=False)
        provider.set_capacity(self.offer_id, 2, self.now_ms() + 1)
        return provider
