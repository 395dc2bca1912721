"""The policies for a deadline and for a budget, driven tick by tick by any simulator.

    policy = make()                                # the least expected cost by the deadline
    policy = make("budget", budget_usd=120.0)      # the least expected time within the budget
    policy = make(budget_usd=120.0)                # for least by the deadline, while that is expected to fit the budget
    policy.start(job, market)                      # once
    policy.step(observation, cloud)                # at every tick

Each object is for one simulation. The protocol's objects belong to the caller and are read by attribute: job
(work_hours, restart_overhead_hours, checkpoint_gb), market (zones, on_demand_usd_per_hour, egress_usd_per_gb,
tick_hours, and probe_hours if probes are billed), observation (elapsed_hours, ticks_left, done_hours, running,
overhead_left_hours, preempted, spot_usd_per_hour, checkpoint_zone) and cloud (try_launch, probe, terminate). If a
market has a `speed` for each zone (hours of work per hour; not part of the protocol), its machines are of several
kinds.

This module only translates: observations into the planner's terms (policy/slack), and what the planner ranks first
into calls. A launch that finds no capacity is an observation, too. Pure: no clock, no I/O, no random source, nothing
shared between objects.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from orchestrator.policy.slack.budget import BudgetPlanner, Move
from orchestrator.policy.slack.planner import Act, Planner
from orchestrator.policy.slack.situation import Situation, Terms, require_numbers

NAME, BUDGET = "deadline", "budget"
KNOWN = (NAME, BUDGET)
SPOT, ON_DEMAND = "spot", "on_demand"


class OnlinePolicy(Protocol):
    """A policy as `make` returns it: one object per simulation."""

    name: str

    def start(self, job: Any, market: Any) -> None:
        """Set up for one job on one market. Raises ValueError if either is not valid."""
        ...

    def step(self, observation: Any, cloud: Any) -> None:
        """Look at one tick's observation and act on the cloud (try_launch, probe, terminate)."""
        ...


def make(name: str = NAME, *, budget_usd: float | None = None) -> OnlinePolicy:
    """A new policy (see the module). A budget, if given, is never exceeded. Raises ValueError for an unknown name, for
    a budget that is not a valid number, and for "budget" without a budget."""
    if name not in KNOWN:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(KNOWN)}")
    if budget_usd is None:
        if name == BUDGET:
            raise ValueError("the policy 'budget' needs a budget in US$: budget_usd=...")
        return _Deadline()
    return _Budget(budget_usd, cheapest=name == NAME)


class _Deadline:
    """Carries out what the planner ranks first. A launch that finds no capacity is an observation for the next
    ranking."""

    name = NAME

    def start(self, job: Any, market: Any) -> None:
        """See OnlinePolicy.start."""
        on_demand_usd = tuple(map(float, market.on_demand_usd_per_hour))
        self._work_h = float(job.work_hours)
        self._planner = self._made(
            Terms(
                restart_h=float(job.restart_overhead_hours),
                tick_h=float(market.tick_hours),
                on_demand_usd=on_demand_usd,
                egress_usd=np.array(market.egress_usd_per_gb, dtype=float) * float(job.checkpoint_gb),
                speed=tuple(map(float, getattr(market, "speed", ()))) or (1.0,) * len(on_demand_usd),
                probe_h=float(getattr(market, "probe_hours", 0.0)),
            )
        )
        self._kept: int | None = None

    def _made(self, terms: Terms) -> Planner:
        return Planner(terms)

    def _best(self, now: Situation) -> Act | Move:
        return self._planner.best(now)

    def _settled(self, best: Act | Move) -> None:
        """Called after the last action of a tick."""

    def step(self, seen: Any, cloud: Any) -> None:
        """See OnlinePolicy.step."""
        spells = self._planner.spells
        running = None if seen.running is None else (int(seen.running[0]), str(seen.running[1]) == SPOT)
        now = Situation(
            now_h=float(seen.elapsed_hours),
            ticks_left=int(seen.ticks_left),
            work_h=self._work_h - float(seen.done_hours),
            running=running,
            overhead_left_h=0.0 if running is None else float(seen.overhead_left_hours),
            at=None if seen.checkpoint_zone is None else int(seen.checkpoint_zone),
            spot_usd=tuple(map(float, seen.spot_usd_per_hour)),
        )
        if seen.preempted and self._kept is not None:
            spells.saw(self._kept, False, now.now_h)
        if running is not None and running[1]:
            spells.saw(running[0], True, now.now_h)
        for zone in self._planner.to_probe(now):
            self._planner.probed(zone, bool(cloud.probe(zone)), now)
        self._kept = self._carried_out(now, cloud)

    def _carried_out(self, now: Situation, cloud: Any) -> int | None:
        """Act until the tick is settled. Returns the zone where a spot machine now runs; None if none does."""
        while True:
            best = self._best(now)
            if best.action == "stay":
                self._settled(best)
                return now.running[0] if now.running is not None and now.running[1] else None
            if best.action == "wait":
                if now.running is not None:
                    cloud.terminate()
                return None
            kind = SPOT if best.action == "spot" else ON_DEMAND
            launched = bool(cloud.try_launch(best.pool, kind))
            if kind == ON_DEMAND:
                self._settled(best)
                return None
            assert best.pool is not None
            self._planner.spells.saw(best.pool, launched, now.now_h)
            if launched:
                self._settled(best)
                return best.pool


class _Budget(_Deadline):
    """As _Deadline, with a budget: the planner keeps track of each bill."""

    _planner: BudgetPlanner

    def __init__(self, budget_usd: float, *, cheapest: bool) -> None:
        if isinstance(budget_usd, bool) or not isinstance(budget_usd, int | float):
            raise ValueError(f"invalid budget: {budget_usd!r}; it must be a number of US$")
        require_numbers("budget", (budget_usd,))
        self._budget_usd, self._cheapest = budget_usd, cheapest
        self.name = NAME if cheapest else BUDGET

    def _made(self, terms: Terms) -> Planner:
        return BudgetPlanner(terms, self._budget_usd, by_deadline=self._cheapest)

    def _best(self, now: Situation) -> Move:
        return self._planner.moves(now)[0]

    def _settled(self, best: Act | Move) -> None:
        assert isinstance(best, Move)
        self._planner.carried_out(best)
