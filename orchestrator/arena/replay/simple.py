"""Simple rules that people use, as policies of a replay. The rules know each job's true speed.

With a deadline, each has the safety net of "Can't Be Late" (NSDI '24): when the remaining time is only what on-demand
needs, it goes to the cheapest on-demand offer that is in time, and stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.arena.replay.knowledge import DAY_MS, Knowledge
from orchestrator.arena.replay.simulator import RETRY_MS, Order
from orchestrator.arena.replay.state import NEVER, State
from orchestrator.market import AvailabilityPoint

HOUR_S = 3600.0
_SPARE_S = 1_800.0  # reserve in addition to a start, a repeated interval and 2 % of the work


@dataclass(frozen=True, slots=True)
class Rule:
    """`spot` or on-demand machines; `settled`: always the offer chosen at first; `daily`: moves to a cheaper one once a
    day; `fastest`: the cheapest of the fastest offers instead of where a step is cheapest."""

    spot: bool
    settled: bool = False
    daily: bool = False
    fastest: bool = False


RULES = {
    "static on-demand": Rule(spot=False, settled=True),
    "static spot": Rule(spot=True, settled=True),
    "greedy at losses": Rule(spot=True),
    "daily by price": Rule(spot=True, daily=True),
}
FASTEST_ON_DEMAND = Rule(spot=False, settled=True, fastest=True)


class Simple:
    """A rule as a policy."""

    def __init__(self, knowledge: Knowledge, rule: Rule) -> None:
        self._knowledge = knowledge
        self._record = knowledge.record
        self._rule = rule
        self._chosen: dict[str, int] = {}
        self._day: dict[str, int] = {}

    def decide(self, at_ms: int, due: Sequence[State], _points: Sequence[AvailabilityPoint]) -> Sequence[Order]:
        """One order for each job that is due."""
        return [self._order(at_ms, state) for state in due]

    def _order(self, at_ms: int, state: State) -> Order:
        if state.target is not None:
            return Order("go on", again_ms=at_ms + DAY_MS)
        here = None if state.machine is None else state.machine.row
        day = (at_ms - state.job.start_ms) // DAY_MS
        again_ms = state.job.start_ms + (day + 1) * DAY_MS if self._rule.daily else NEVER
        deadline_ms, listing = state.job.deadline_ms, self._record.listing
        if here is not None and not listing.spot[here]:
            return Order("stay")
        if deadline_ms is not None and self._rule.spot:
            spare_s, rescuer = self._rescue(at_ms, state, deadline_ms)
            if spare_s <= 0:
                return Order("launch", rescuer, NEVER)
            again_ms = min(again_ms, at_ms + max(round(spare_s * 1000), 60_000))
        looked, self._day[state.job.id] = self._day.get(state.job.id), day
        if here is not None and (not self._rule.daily or looked == day) and not state.just_refused:
            return Order("stay", again_ms=again_ms)
        rows = self._in_order(at_ms, state, here)
        if self._rule.settled:
            chosen = self._chosen.setdefault(state.job.id, rows[0] if rows else -1)
            rows = [] if chosen in state.just_refused else [chosen]
        if rows:
            return Order("launch", rows[0], again_ms)
        return Order("stay", again_ms=min(again_ms, at_ms + RETRY_MS) if here is None else again_ms)

    def _in_order(self, at_ms: int, state: State, here: int | None) -> list[int]:
        """The offers that were not just refused, cheapest per step first; only those cheaper than the current one."""
        found = sorted(self._per_step(at_ms, state, spot=self._rule.spot))
        limit = [cost for cost, row in found if row == here]
        return [row for cost, row in found if row not in state.just_refused and (not limit or cost < limit[0])]

    def _per_step(self, at_ms: int, state: State, *, spot: bool) -> Iterator[tuple[float, int]]:
        listing = self._record.listing
        for row in range(len(listing)):
            kind = listing.kinds[int(listing.kind[row])]
            rate, price = state.job.rates.get((kind.gpu, kind.gpu_count)), self._record.price(row, at_ms)
            if bool(listing.spot[row]) == spot and rate is not None and price is not None:
                yield (price / 1e18 - rate if self._rule.fastest else price / rate), row

    def _rescue(self, at_ms: int, state: State, deadline_ms: int) -> tuple[float, int]:
        """(seconds until on-demand must take over, the offer that then does)."""
        left_s, found = (deadline_ms - at_ms) / 1000, []
        size, listing = state.job.checkpoint_bytes, self._record.listing
        begin_s = self._knowledge.startup_s + 3 * state.job.save_s + size / 125e6
        again_s = 0.0 if state.machine is None else state.job.interval_s + begin_s
        for cost, row in self._per_step(at_ms, state, spot=False):
            kind = listing.kinds[int(listing.kind[row])]
            rate = state.job.rates[kind.gpu, kind.gpu_count]
            train_s = state.job.seconds_for(state.job.steps - state.steps(at_ms), rate)
            spare_s = left_s - train_s * 1.02 - begin_s - again_s - _SPARE_S
            found.append((cost, row, spare_s, train_s))
        most = max(spare_s for _, _, spare_s, _ in found)
        in_time = [each for each in found if each[2] >= min(most, 0.0)]
        return most, min(in_time)[1]
