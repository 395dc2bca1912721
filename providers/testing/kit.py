"""Shared parts of the kit's tests: the hooks that a provider's test implements, and helpers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

from providers.base import Landed, LaunchesAnywhere, LaunchSpec, Provider
from providers.errors import ProviderError, UnavailableError
from providers.instance import Instance
from providers.offer import region_of

Error = TypeVar("Error", bound=ProviderError)
HOUR_S = 3600.0
_ROUNDS = 400


class Kit(ABC):
    """See providers.testing."""

    offer_id: str
    user_data = "exec sleep 1000\n"
    install = "conformance"
    step_s = 5.0
    late_s = 0.0

    @abstractmethod
    def connect(self) -> Provider:
        """A new client of this test's cloud, as after a restart of the caller."""

    @abstractmethod
    def now_ms(self) -> int:
        """The current market time in epoch milliseconds."""

    @abstractmethod
    def advance(self, market_s: float) -> None:
        """Let `market_s` market seconds pass (and give the provider's machines time to run)."""

    # Optional: trouble that a test may arrange at the cloud. False: it cannot be arranged, and its tests are skipped
    # for this provider.

    other_offer_id = ""
    """Another offer with capacity, or ''."""

    def limit_capacity(self, machines: int) -> bool:
        """`offer_id` has capacity for this many machines at once from now on."""
        return False

    next_door = ""
    """An offer like `offer_id` in another zone of its region, with capacity, or ''."""

    def limit_capacity_next_door(self, machines: int) -> bool:
        """`next_door` has capacity for this many machines at once from now on."""
        return False

    other_type = ""
    """An offer of another instance type in the region of `offer_id`, bought in the same way, with capacity, or ''."""

    def limit_capacity_of_other_type(self, machines: int) -> bool:
        """`other_type` has capacity for this many machines at once from now on."""
        return False

    def limit_quota(self, machines: int) -> bool:
        """The account may have this many machines of `offer_id` at once from now on."""
        return False

    def refuse_together(self) -> bool:
        """The cloud refuses launches that name several offers from now on (LaunchesAnywhere)."""
        return False

    def lose_reply(self, call: Literal["launch", "terminate"]) -> bool:
        """The next such call takes effect, and its answer is lost."""
        return False

    def announce_end(self, instance_id: str) -> bool:
        """The cloud gives notice that it will take the machine away."""
        return False

    def take_away(self, instance_id: str) -> bool:
        """The cloud takes the machine away, now."""
        return False

    # --- for the tests ---

    @property
    def region(self) -> str:
        """The region of `offer_id`."""
        return region_of(self.offer_id)

    def spec(self, *, count: int = 1, time_to_live_s: int | None = None, token: str = "token-1") -> LaunchSpec:
        """A launch of `count` machines."""
        tags = {"tradewind-install": self.install, "tradewind-job": "job-1"}
        return LaunchSpec(token, self.offer_id, self.user_data, tags, count, "", time_to_live_s)

    def until(self, provider: Provider, instance_id: str, reached: Callable[[Instance], bool]) -> Instance:
        """The instance once `describe` shows it in this state."""
        instance: Instance | None = None
        for _ in range(_ROUNDS):
            for instance in provider.describe([instance_id]):  # may be empty within the listing lag
                if reached(instance):
                    return instance
            self.advance(self.step_s)
        raise AssertionError(f"the instance never reached the expected state: {instance}")

    def patiently(self, do: Callable[[], None]) -> None:
        """Repeat a call that needs time until it is done."""
        for _ in range(_ROUNDS):
            try:
                return do()
            except UnavailableError:
                self.advance(self.step_s)
        raise AssertionError("it never finished")

    def listed(self, provider: Provider, count: int) -> list[Instance]:
        """The answer of `list_owned` once it shows this many."""
        for _ in range(_ROUNDS):
            found = list(provider.list_owned(self.install))
            if len(found) >= count:
                return found
            self.advance(self.step_s)
        raise AssertionError(f"{count} instances never showed up in list_owned")

    def at_last(self, provider: LaunchesAnywhere, spec: LaunchSpec) -> Landed:
        """The answer to a launch once the cloud shows where it has landed."""
        for _ in range(_ROUNDS):
            with suppress(UnavailableError):
                return provider.launch_any(spec)
            self.advance(self.step_s)
        raise AssertionError("the provider never reported where the launch has landed")

    def release(self, provider: Provider, *instance_ids: str) -> Instance:
        """Terminate all instances; returns the final state of the last one."""
        for instance_id in instance_ids:
            provider.terminate(instance_id)
        return [self.until(provider, instance_id, lambda found: not found.alive) for instance_id in instance_ids][-1]


def left(provider: Provider, instance_id: str) -> Instance:
    """The instance as `describe` shows it now."""
    (instance,) = provider.describe([instance_id])
    return instance


def ignore(_line: str) -> None:
    """Ignore a line of progress."""


def raises(kind: type[Error], call: Callable[[], object]) -> Error:
    """The error of this kind that `call` raises; fails if it does not."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
