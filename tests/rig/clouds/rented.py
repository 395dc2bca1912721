"""RentedCloud: what a loopback cloud has in common with the others, as histories see it.

What is true there (its machines, their bills, what is left) is read from the cloud itself, past its provider. Its
machines run nothing: tests.rig.site simulates their trainers.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from providers.base import Provider
from providers.clock import VirtualClock
from providers.fake import Bill
from providers.instance import EndReason, Instance, InstanceState
from providers.offer import CapacityType, OfferId
from tests.clouds.server import Request, Response


@dataclass
class Guest:
    """What runs on a machine, as far as its cloud can tell. `off`: it has shut down by itself."""

    off: bool = False
    deadline_ms: int | None = None

    def notify(self, at: datetime) -> None:
        """Its end is announced."""
        self.deadline_ms = round(at.timestamp() * 1000)

    def shut_down(self) -> None:
        """Does nothing: nothing runs."""

    def end(self) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class Weather:
    """How a cloud behaves in one history, in seconds: how long new machines are not listed, how long they take to start
    and to end, and after what time a request takes effect whose sender has given it up."""

    lag_s: float
    pending_s: float
    ending_s: float
    late_s: float

    @classmethod
    def of(cls, rng: random.Random) -> Weather:
        """A random one. Providers allow for two minutes from a request until its machine is listed."""
        choose = rng.choice
        return cls(
            choose((0.0, 5.0, 40.0)), choose((0.0, 3.0, 15.0)), choose((0.0, 8.0, 60.0)), choose((1.0, 15.0, 60.0))
        )


class RentedCloud(ABC):
    """`machine_requests` are those that change machines, by their names in `named`; `network_requests` those that make
    and remove networks; `targets` says which of them a fault of a provider's call may hit. `disturbed` has the requests
    (as `named` names them) that did not take their usual course."""

    name: ClassVar[str]
    offers: ClassVar[tuple[str, ...]]
    notice_s: ClassVar[float]
    launches: ClassVar[str]
    """The request that launches one machine."""
    machine_requests: ClassVar[tuple[str, ...]]
    network_requests: ClassVar[tuple[str, ...]]
    targets: ClassVar[Mapping[str, tuple[str, ...]]]
    throttled: ClassVar[Response]
    settings: ClassVar[Mapping[str, object]]
    together: ClassVar[frozenset[str]] = frozenset()
    """Calls that send requests about several machines at the same time."""

    def __init__(self, clock: VirtualClock, weather: Weather) -> None:
        self.clock, self.weather = clock, weather
        self.reasons: dict[str, EndReason] = {}  # why machines ended that nobody asked to end
        self.disturbed: set[tuple[str, str]] = set()
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._changes = 0
        self._seen: tuple[tuple[int, int], tuple[Instance, ...]] | None = None

    # -- what its provider sees ---------------------------------------------------------------------------------------
    @abstractmethod
    def connect(self) -> Provider:
        """A client of it without memory."""

    @abstractmethod
    def serve(self, request: Request) -> Response:
        """Answer a request."""

    @abstractmethod
    def named(self, request: Request) -> tuple[str, str]:
        """The name of a request, and what it is about."""

    def answer(self, request: Request) -> Response:
        """Answer a request, which may change what is there."""
        self._changes += 1
        return self.serve(request)

    def answer_late(self, request: Request) -> None:
        """Let a request take effect when nobody waits for its answer any more."""
        self._at(self.weather.late_s, lambda: self.answer(request))

    def pass_time(self) -> None:
        """Let everything happen that is due."""
        now_s = self.clock.monotonic_s()
        while due := [each for each in self._later if each[0] <= now_s]:  # one of them may pass time itself
            self._later.remove(due[0])
            self._changes += 1
            due[0][1]()

    # -- what is true -------------------------------------------------------------------------------------------------
    def instances(self) -> tuple[Instance, ...]:
        """All machines; of several with one id, the newest."""
        self.pass_time()
        key = self.clock.now_ms(), self._changes
        if self._seen is None or self._seen[0] != key:
            self._seen = key, tuple({each.id: each for each, _ in self._all()}.values())
        return self._seen[1]

    def instance(self, instance_id: str) -> Instance | None:
        """One of them."""
        return next((each for each in self.instances() if each.id == instance_id), None)

    def bills(self) -> tuple[Bill, ...]:
        """What each machine that there ever was has cost."""
        return tuple(
            Bill(
                each.id, each.offer_id, each.token, each.tags, each.billed_from_ms, each.billed_to_ms, cost, {},
                each.end_reason,
            )
            for each, cost in self._all()
        )  # fmt: skip

    @abstractmethod
    def _all(self) -> Iterator[tuple[Instance, int]]:
        """Every machine that there ever was, in order, with its cost in nano-USD."""

    def ends_unknown(self, bill: Bill) -> bool:
        """Whether the cloud cannot say when this machine ended, so that the ledger has it until somebody missed it."""
        return False

    @abstractmethod
    def left(self) -> list[str]:
        """The machines, disks, interfaces and addresses that still cost something."""

    @abstractmethod
    def parts(self) -> list[str]:
        """The parts of networks that are there, and whatever else an installation has made."""

    # -- what happens to it -------------------------------------------------------------------------------------------
    def set_price(self, offer_id: str, nano_usd_per_hour: int) -> None:
        """Change a price, where the cloud's prices change within hours: not at most of them."""
        return

    @abstractmethod
    def set_capacity(self, offer_id: str, machines: int | None) -> None:
        """From now on this pool has `machines` in total; None: unlimited."""

    def preempt(self, instance_id: str, notice_s: float | None = None) -> None:
        """Take a spot machine away, at once or after the cloud's usual notice. Others break down instead."""
        if not OfferId.parse(self._of(instance_id).offer_id).spot:
            self.crash(instance_id)
        elif notice_s is None:
            self._take(instance_id)
        elif self._of(instance_id).notice_deadline_ms is None:
            self._announce(instance_id)
            self._at(self.notice_s, lambda: self._take(instance_id))
        self._changes += 1

    def crash(self, instance_id: str) -> None:
        """Let a machine shut down by itself."""
        self._guest(instance_id).off = True
        self.reasons.setdefault(instance_id, EndReason.FAILED)
        self._changes += 1

    def _take(self, instance_id: str) -> None:
        found = self.instance(instance_id)
        if found is not None and found.state in (InstanceState.PENDING, InstanceState.RUNNING):
            self.reasons.setdefault(instance_id, EndReason.PREEMPTED)
            self._taken(instance_id)
            self._changes += 1

    @abstractmethod
    def _taken(self, instance_id: str) -> None: ...

    @abstractmethod
    def _announce(self, instance_id: str) -> None: ...

    @abstractmethod
    def _guest(self, instance_id: str) -> Guest: ...

    @contextmanager
    def full(self, offer_id: str) -> Iterator[None]:
        """Without capacity for this offer."""
        before = self._capacity(offer_id)
        self.set_capacity(offer_id, 0)
        yield
        self.set_capacity(offer_id, before)

    @abstractmethod
    def _capacity(self, offer_id: str) -> int | None: ...

    def _of(self, instance_id: str) -> Instance:
        found = self.instance(instance_id)
        assert found is not None
        return found

    def _at(self, in_s: float, what: Callable[[], object]) -> None:
        self._later.append((self.clock.monotonic_s() + in_s, what))


def offer(provider: str, region: str, zone: str, kind: str, *, spot: bool) -> str:
    """The id of an offer."""
    return str(OfferId(provider, region, zone, kind, CapacityType.SPOT if spot else CapacityType.ON_DEMAND))


def ms(at: datetime | None) -> int | None:
    """Epoch milliseconds."""
    return None if at is None else round(at.timestamp() * 1000)


def texts(names: Sequence[str], kind: str) -> list[str]:
    """What is left, in words."""
    return [f"{kind} {name}" for name in sorted(names)]


Make = Callable[[VirtualClock, Weather, int], RentedCloud]
"""Opens an empty account, by its clock, its weather and a seed."""
PATIENT_S = 900.0
"""Real seconds that a client library waits: an answer may be held back while others act."""
