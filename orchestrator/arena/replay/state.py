"""State: one job in a replay at one moment: its machines, its progress, its bill, and its history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from orchestrator.arena.replay.bill import Bill
from orchestrator.arena.replay.jobs import ReplayJob
from orchestrator.model import Reason
from orchestrator.perf import InstanceKind
from providers.billing.charges import Location

NEVER = 1 << 62
MEASURED_AFTER_MS = 20 * 60_000


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the offer `row`, billed from `from_ms`; it trains from `ready_ms` and is lost at `lost_ms` (NEVER:
    not), which no policy sees."""

    row: int
    kind: InstanceKind
    place: Location
    from_ms: int
    ready_ms: int
    lost_ms: int
    came_by: Reason


@dataclass(frozen=True, slots=True)
class Expected:
    """The forecast of a decision from `at_ms` on: cost (nano-USD) and time (seconds) to finish, 5th and 95th
    percentile; `paid` before."""

    at_ms: int
    paid: int
    cost: tuple[int, int]
    seconds: tuple[float, float]


@dataclass(slots=True)
class State:
    """A job in a replay. Without a machine it waits; with a `machine` that is not ready it starts, otherwise it trains.
    `base` are the steps when it began to train there, all of them saved; it last trained at `checkpoint_at`, until
    `trained_ms` (None: never). During moves it does not train for `handover_s` (None: for a save and a restore).
    `target` is the machine of a started voluntary move. `decide_ms` is when its policy is asked again. Its money will
    be spent at `money_ms` if nothing changes; it was spent at `paused_ms`."""

    job: ReplayJob
    bill: Bill
    decide_ms: int
    machine: Machine | None = None
    target: Machine | None = None
    base: float = 0.0
    checkpoint_at: Location | None = None
    trained_ms: int | None = None
    handover_s: float | None = None
    began: bool = False
    losses: int = 0
    refused: int = 0
    aborted: int = 0
    just_refused: list[int] = field(default_factory=list)
    moved_ms: list[int] = field(default_factory=list)
    measured: frozenset[InstanceKind] = frozenset()
    finished_ms: int | None = None
    money_ms: int = NEVER
    paused_ms: int | None = None
    expected: list[Expected] = field(default_factory=list)

    def copy(self) -> State:
        """An independent copy."""
        return replace(
            self,
            bill=self.bill.copy(),
            just_refused=list(self.just_refused),
            moved_ms=list(self.moved_ms),
            expected=list(self.expected),
        )

    def rate(self, machine: Machine) -> float:
        """Steps per second on a machine."""
        return self.job.rates[machine.kind]

    def training(self, at_ms: int) -> bool:
        """Whether it trains."""
        return self.machine is not None and at_ms >= self.machine.ready_ms

    def idle_s(self, at_ms: int) -> float:
        """The seconds for which it has had no machine."""
        since_ms = self.job.start_ms if self.trained_ms is None else self.trained_ms
        return 0.0 if self.machine is not None else (at_ms - since_ms) / 1000

    def steps(self, at_ms: int) -> float:
        """Steps done, saved or not."""
        if self.machine is None or at_ms <= self.machine.ready_ms:
            return self.base
        done = self.job.trained((at_ms - self.machine.ready_ms) / 1000, self.rate(self.machine))
        return min(self.base + done, float(self.job.steps))

    def saved_steps(self, at_ms: int) -> float:
        """Steps in its newest complete checkpoint."""
        if self.machine is None or at_ms <= self.machine.ready_ms:
            return self.base
        return self.base + self.job.saved((at_ms - self.machine.ready_ms) / 1000, self.rate(self.machine))

    @property
    def finish_ms(self) -> int:
        """The time at which it finishes if it stays; NEVER without a machine."""
        if self.machine is None:
            return NEVER
        seconds = self.job.seconds_for(self.job.steps - self.base, self.rate(self.machine))
        return self.machine.ready_ms + round(seconds * 1000)

    @property
    def measured_ms(self) -> int:
        """The time at which its speed on its machine will be measured; NEVER if it is already measured or has no
        machine."""
        if self.machine is None or self.machine.kind in self.measured:
            return NEVER
        return self.machine.ready_ms + MEASURED_AFTER_MS

    def next_ms(self) -> int:
        """The time of its next event."""
        if self.finished_ms is not None or self.paused_ms is not None:
            return NEVER
        if self.machine is None:
            return self.decide_ms
        at = min(self.machine.lost_ms, self.finish_ms, self.measured_ms)
        if self.target is not None:
            return min(at, self.target.lost_ms, self.target.ready_ms)
        return min(at, max(self.decide_ms, self.machine.ready_ms))

    @property
    def machines(self) -> list[Machine]:
        """Its billed machines."""
        return [machine for machine in (self.machine, self.target) if machine is not None]

    def spent(self, at_ms: int) -> int:
        """nano-USD so far."""
        return self.bill.total + sum(self.bill.accrued(each.row, each.from_ms, at_ms) for each in self.machines)

    def spent_if_ended(self, at_ms: int) -> int:
        """nano-USD if its machines end now."""
        ended = (self.bill.ended(each.row, each.from_ms, max(at_ms, each.from_ms)) for each in self.machines)
        return self.bill.total + sum(sum(each.values()) for each in ended)

    def fetch_cost(self, machine: Machine, source: Location | None) -> int:
        """nano-USD for bringing its checkpoint to a machine."""
        if source is None:
            return 0
        return self.bill.transfer(source, machine.place, self.job.checkpoint_bytes)
