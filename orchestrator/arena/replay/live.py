"""Live: the product's decision function as the policy of a replay; it adds no rule.

It only converts: the state of a job (State) into Demand and Running, and a Placement into an Order.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.arena.replay.knowledge import DAY_MS, Knowledge, MarketStream
from orchestrator.arena.replay.simulator import Order
from orchestrator.arena.replay.state import Expected, State
from orchestrator.market import AvailabilityPoint, Market
from orchestrator.model import Placement, Plan, Reason
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, MoveLimits, Running, Underway, decide
from orchestrator.policy.explanation.expected import expected

NO_MOVES = MoveLimits(max_migrations_per_day=0)


class Live:
    """`decide` on the facts known so far. With `known` speeds, each job has been measured on every kind of hardware,
    otherwise only where it has trained."""

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        limits: MoveLimits | None = None,
        known: bool = True,
        background: Sequence[AvailabilityPoint] = (),
    ) -> None:
        self._knowledge = knowledge
        self._stream = MarketStream(knowledge, background)
        self._limits = limits or MoveLimits()
        self._known = known
        self._book = PerfBook.as_of(0, ())
        self._measured: dict[str, tuple[Observation, ...]] = {}

    def decide(self, at_ms: int, due: Sequence[State], points: Sequence[AvailabilityPoint]) -> Sequence[Order]:
        """One order for each job that is due."""
        market = self._stream.at(at_ms, points)
        plan = planned(due, market, self._perf(due), self._limits)
        return [self._order(at_ms, state, plan.placement(state.job.id)) for state in due]

    def _perf(self, due: Sequence[State]) -> PerfBook:
        learned = False
        for state in due:
            seen = state.job.observations
            if not self._known:
                seen = tuple(each for each in seen if (each.gpu, each.gpu_count) in state.measured)
            if self._measured.get(state.job.id, ()) != seen:
                self._measured[state.job.id], learned = seen, True
        if learned:
            self._book = PerfBook.as_of(0, [each for seen in self._measured.values() for each in seen])
        return self._book

    def _order(self, at_ms: int, state: State, placement: Placement) -> Order:
        row = -1 if placement.offer_id is None else self._knowledge.record.listing.row(placement.offer_id)
        assert row is not None
        expected, again_ms = _expected(at_ms, state, placement), self._again_ms(at_ms, placement)
        probed = placement.probe is not None and placement.probe.offer_id == placement.offer_id
        if placement.action == "place":
            return Order("launch", row, again_ms, "probe" if probed else "first placement", None, expected)
        if placement.action == "move":
            if state.target is not None:
                return Order("go on", again_ms=again_ms)
            by: Reason = "probe" if probed else "cheaper offer"
            return Order("launch", row, again_ms, by, placement.saving_nano_usd, expected)
        if placement.lacks_money:
            return Order("pause")
        return Order("stay", again_ms=again_ms, expected=expected)  # a running job is not stopped by an estimate

    def _again_ms(self, at_ms: int, placement: Placement) -> int:
        asked, change = placement.again_at_ms, self._knowledge.next_change_ms(at_ms)
        return min(each for each in (asked, change, at_ms + DAY_MS) if each is not None and each > at_ms)


def planned(due: Sequence[State], market: Market, perf: PerfBook, limits: MoveLimits) -> Plan:
    """The plan of `decide` for these jobs at the market's time."""
    demands = [_demand(market.at, state) for state in due]
    running = {state.job.id: _running(market.at, state, market.ids) for state in due if state.machine is not None}
    return decide(demands, market, perf, running, limits=limits)


def _demand(at_ms: int, state: State) -> Demand:
    saved = state.saved_steps(at_ms) > 0  # before the first save, the product does not know its size
    return Demand(
        job=state.job.job,
        total_steps=state.job.steps,
        done_steps=int(state.steps(at_ms)),
        spent_nano_usd=state.spent(at_ms),
        checkpoint_bytes=state.job.checkpoint_bytes if saved else 0,
        checkpoint_s=state.job.save_s,
        handover_s=state.handover_s,
        checkpoint_at=state.checkpoint_at,
        idle_s=state.idle_s(at_ms),
    )


def _running(at_ms: int, state: State, ids: Sequence[str]) -> Running:
    machine, target = state.machine, state.target
    assert machine is not None
    return Running(
        offer_id=ids[machine.row],
        since_ms=machine.ready_ms,
        last_migration_ms=max(state.moved_ms, default=None),
        migrations_today=sum(moved_ms > at_ms - DAY_MS for moved_ms in state.moved_ms),
        came_by=machine.came_by,
        move=None if target is None else Underway(ids[target.row], target.came_by, ready=True),
    )


def _expected(at_ms: int, state: State, placement: Placement) -> Expected | None:
    """The interval that the decision shows; None without one."""
    shown = expected(placement, at_ms)
    if isinstance(shown, str) or state.target is not None:
        return None
    cost = (shown.cost_low_nano_usd, shown.cost_high_nano_usd)
    return Expected(at_ms, state.spent(at_ms), cost, (shown.duration_low_s, shown.duration_high_s))
