"""Simulator: plays jobs on a record with hidden capacity; a policy decides from the observations so far.

Times are exact (ms of market time). A launch in a pool without capacity is refused and costs nothing; the policy is
asked again at once. A pool that goes down takes all its machines, and the work since the last checkpoint is lost. A
voluntary move starts the target while the source trains (both are billed), then stops training for a save, the transfer
between regions and a restore. Moving a checkpoint is billed by the tariff.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from orchestrator.arena.replay.bill import Bill
from orchestrator.arena.replay.capacity import Capacity
from orchestrator.arena.replay.jobs import ReplayJob
from orchestrator.arena.replay.knowledge import DAY_MS, Knowledge
from orchestrator.arena.replay.state import NEVER, Expected, Machine, State
from orchestrator.market import AvailabilityKind, AvailabilityPoint
from orchestrator.model import Reason
from orchestrator.policy.ranking.transition_costs import LINK_BYTES_PER_S
from providers.billing.charges import Location, crosses

RETRY_MS = 15 * 60_000
"""A waiting job is decided again after at most this long."""
_MOST_TRIES = 500


@dataclass(frozen=True, slots=True)
class Order:
    """A policy's order for one job: "launch" a machine of `row` (a move if the job trains), "stay" (or abort a started
    move), "go on" with that move, or "pause" for lack of money. It is asked again at `again_ms`. `promise` is the
    saving (nano-USD) expected from the move."""

    action: Literal["launch", "stay", "go on", "pause"]
    row: int = -1
    again_ms: int = NEVER
    reason: Reason = "cheaper offer"
    promise: int | None = None
    expected: Expected | None = None


class Policy(Protocol):
    """Decides for due jobs; sees their state without the future, and all observations so far."""

    def decide(self, at_ms: int, due: Sequence[State], points: Sequence[AvailabilityPoint], /) -> Sequence[Order]:
        """One order for each job that is due."""
        ...


@dataclass(frozen=True, slots=True)
class Move:
    """A started voluntary move: the promised saving (nano-USD), and the job and the number of observations just before
    it."""

    at_ms: int
    promise: int
    before: State
    points: int


class Simulator:
    """Plays jobs until all have ended, or until `until_ms`."""

    def __init__(
        self, knowledge: Knowledge, capacity: Capacity, policy: Policy, jobs: Sequence[ReplayJob], until_ms: int
    ) -> None:
        self.knowledge = knowledge
        self.record = knowledge.record
        self.capacity = capacity
        self.policy = policy
        self.until_ms = until_ms
        self.points: list[AvailabilityPoint] = []
        self.by: list[str] = []
        """The job behind each observation."""
        self.moves: dict[str, list[Move]] = {job.id: [] for job in jobs}
        self.states = [
            State(job, Bill(self.record, knowledge.tariff, 3 * job.checkpoint_bytes), job.start_ms) for job in jobs
        ]
        self.log: Callable[[int, State, str], None] = lambda *_: None

    def resume(self, state: State, points: Sequence[AvailabilityPoint], at_ms: int) -> None:
        """Add a job in its state at a time, with its observations until then; its policy is asked at once."""
        state.decide_ms = at_ms
        self.states.append(state)
        self.moves[state.job.id] = []
        self.points += points
        self.by += [state.job.id] * len(points)

    def play(self) -> Sequence[State]:
        """The final states, in the order of the jobs."""
        wake = [self._next_ms(state) for state in self.states]
        while wake and (at_ms := min(wake)) < self.until_ms:
            indices = [index for index, when_ms in enumerate(wake) if when_ms == at_ms]
            now = [self.states[index] for index in indices]
            for state in now:
                self._happen(at_ms, state)
            due = [state for state in now if self._due(at_ms, state)]
            for _ in range(_MOST_TRIES):
                if not due:
                    break
                orders = self.policy.decide(at_ms, due, self.points)
                due = [state for state, order in zip(due, orders, strict=True) if not self._obey(at_ms, state, order)]
            else:
                raise RuntimeError(f"no decision for {due[0].job.id} at {at_ms}")
            for index, state in zip(indices, now, strict=True):
                state.just_refused.clear()
                wake[index] = self._next_ms(state)
        return self.states

    def _next_ms(self, state: State) -> int:
        """The time of a job's next event, or when its money is spent."""
        at_ms, budget = state.next_ms(), state.job.job.spec.budget_nano_usd
        state.money_ms = NEVER
        if budget is None or not state.machines or at_ms >= self.until_ms or state.spent_if_ended(at_ms) <= budget:
            return at_ms
        instants = range(max(each.from_ms for each in state.machines), at_ms + 1)
        over = bisect_right(instants, budget, key=state.spent_if_ended)
        state.money_ms = instants[max(over - 1, 0)]
        return state.money_ms

    def _due(self, at_ms: int, state: State) -> bool:
        if state.finished_ms is not None or state.paused_ms is not None:
            return False
        if state.machine is None:
            return state.decide_ms <= at_ms
        if state.target is not None:
            return state.target.ready_ms <= at_ms
        return state.training(at_ms) and state.decide_ms <= at_ms

    def _happen(self, at_ms: int, state: State) -> None:
        """Carry out the events that happen by themselves."""
        machine, target = state.machine, state.target
        if state.money_ms <= at_ms:
            self._pause(at_ms, state)
            return
        if target is not None and target.lost_ms <= at_ms:
            self._end(at_ms, state, target, "lost")
            state.target, state.decide_ms = None, at_ms
        if machine is None:
            return
        if machine.ready_ms <= at_ms:
            state.checkpoint_at = machine.place
        if state.finish_ms <= at_ms:
            self._end(at_ms, state, machine, "released")
            if state.target is not None:
                self._end(at_ms, state, state.target, "released")
            state.machine, state.target, state.finished_ms, state.base = None, None, at_ms, float(state.job.steps)
            self.log(at_ms, state, "finished")
        elif machine.lost_ms <= at_ms:
            self._lose(at_ms, state, machine)
        elif state.measured_ms <= at_ms:
            state.measured |= {machine.kind}
            state.decide_ms = at_ms

    def _lose(self, at_ms: int, state: State, machine: Machine) -> None:
        self.log(at_ms, state, f"lost {self.record.listing.ids[machine.row]}")
        state.base = state.saved_steps(at_ms)
        if state.training(at_ms):
            state.trained_ms = at_ms
        state.losses += 1
        self._end(at_ms, state, machine, "lost")
        state.machine, state.decide_ms = None, at_ms
        if state.target is not None:  # the machine of the move takes over from the last checkpoint
            ready_ms = max(state.target.ready_ms, at_ms) + self._fetch_ms(state, state.target)
            state.machine, state.target = replace(state.target, ready_ms=ready_ms), None

    def _obey(self, at_ms: int, state: State, order: Order) -> bool:
        """Carry out an order. False if a launch was refused."""
        state.decide_ms = max(order.again_ms, at_ms + 1)
        if state.target is not None:
            source = state.machine
            if order.action == "go on" and source is not None and self._affords(state, state.target, source.place):
                self._cut_over(at_ms, state, state.target)
            else:
                self.log(at_ms, state, f"aborts its move to {self.record.listing.ids[state.target.row]}")
                self._end(at_ms, state, state.target, "released")
                state.target = None
                state.aborted += 1
            return True
        if order.action == "launch":
            if not self._launch(at_ms, state, order):
                return False
            self._note(state, order.expected)
        elif not state.expected or at_ms >= state.expected[-1].at_ms + DAY_MS:
            self._note(state, order.expected)
        if order.action == "pause":
            self._pause(at_ms, state)
        if state.machine is None:
            state.decide_ms = min(state.decide_ms, at_ms + RETRY_MS)
        return True

    @staticmethod
    def _note(state: State, expected: Expected | None) -> None:
        if expected is not None:
            state.expected.append(expected)

    def _launch(self, at_ms: int, state: State, order: Order) -> bool:
        offer_id, pool = self.record.listing.ids[order.row], self.capacity[order.row]
        if not pool.up(at_ms):
            self._observe(at_ms, state, order.row, "refused")
            state.refused += 1
            state.just_refused.append(order.row)
            return False
        listing, lost_ms = self.record.listing, pool.lost_ms(at_ms)
        kind = listing.kinds[int(listing.kind[order.row])]
        machine = Machine(
            order.row,
            (kind.gpu, kind.gpu_count),
            tuple(listing.sites[int(listing.site[order.row])]),
            at_ms,
            at_ms + round(self.knowledge.startup_s * 1000),
            NEVER if lost_ms is None else lost_ms,
            order.reason,
        )
        if state.machine is None:
            if not self._affords(state, machine, state.checkpoint_at if state.base > 0 else None):
                self._pause(at_ms, state)
                return True
            machine = replace(machine, ready_ms=machine.ready_ms + self._fetch_ms(state, machine))
            state.machine = machine
        else:
            move = Move(at_ms, order.promise or 0, state.copy(), len(self.points))
            self.moves[state.job.id].append(move)
            state.moved_ms.append(at_ms)
            state.target = machine
        state.began = True
        self.log(at_ms, state, f"{'move to' if state.target else 'start on'} {offer_id}")
        self._observe(at_ms, state, order.row, "launched")
        return True

    def _affords(self, state: State, machine: Machine, source: Location | None) -> bool:
        """Whether the budget covers the transfer of the checkpoint to a new machine, and its shortest bill."""
        budget = state.job.job.spec.budget_nano_usd
        if budget is None:
            return True
        at_ms = machine.from_ms if state.target is None else machine.ready_ms
        shortest = sum(state.bill.ended(machine.row, machine.from_ms, at_ms).values())
        both = state.spent_if_ended(at_ms) + (shortest if state.machine is None else 0)
        return both + state.fetch_cost(machine, source) <= budget

    def _pause(self, at_ms: int, state: State) -> None:
        """Ends its machines, because its money is spent."""
        state.base = state.saved_steps(at_ms)
        for machine in state.machines:
            self._end(at_ms, state, machine, "released")
        state.machine, state.target, state.paused_ms = None, None, at_ms
        self.log(at_ms, state, "paused: its money is spent")

    def _fetch_ms(self, state: State, machine: Machine) -> int:
        """Milliseconds for fetching the checkpoint, which is billed."""
        if state.base <= 0 or state.checkpoint_at is None:
            return 0
        state.bill.settled["egress"] += state.fetch_cost(machine, state.checkpoint_at)
        return round((state.job.save_s + self._transfer_s(state, machine)) * 1000)

    @staticmethod
    def _transfer_s(state: State, machine: Machine) -> float:
        here = state.checkpoint_at
        return state.job.checkpoint_bytes / LINK_BYTES_PER_S if here and crosses(here, machine.place) else 0.0

    def _cut_over(self, at_ms: int, state: State, target: Machine) -> None:
        source = state.machine
        assert source is not None
        state.base, state.checkpoint_at = state.steps(at_ms), source.place
        ready_ms = at_ms + round(state.job.save_s * 1000) + self._fetch_ms(state, target)
        self._end(at_ms, state, source, "released", min(ready_ms, source.lost_ms))
        state.machine, state.target = replace(target, ready_ms=ready_ms), None
        state.moved_ms[-1] = ready_ms

    def _end(
        self, at_ms: int, state: State, machine: Machine, kind: AvailabilityKind, billed_to_ms: int | None = None
    ) -> None:
        ended_ms = at_ms if billed_to_ms is None else billed_to_ms
        state.bill.settled.update(state.bill.ended(machine.row, machine.from_ms, ended_ms))
        self._observe(at_ms, state, machine.row, kind)

    def _observe(self, at_ms: int, state: State, row: int, kind: AvailabilityKind) -> None:
        self.points.append(AvailabilityPoint(self.record.listing.ids[row], at_ms, kind))
        self.by.append(state.job.id)
