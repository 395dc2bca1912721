"""The product's policy, driven tick by tick by any simulator.

    policy = make()                      # a fresh object for each simulation
    policy.start(job, market)            # once
    policy.step(observation, cloud)      # at every tick

The protocol's objects belong to the caller and are read by attribute: job (work_hours, deadline_hours,
restart_overhead_hours, checkpoint_gb), market (zones, on_demand_usd_per_hour, egress_usd_per_gb, tick_hours),
observation (tick, elapsed_hours, ticks_left, done_hours, running, overhead_left_hours, preempted, spot_usd_per_hour,
checkpoint_zone) and cloud (try_launch, terminate). `decide` always answers where to run. This module decides when to
ask it, applies the upper limit on price plus egress (the on-demand cost), and keeps the deadline, which is never missed
while on-demand capacity is available.

Pure: no clock, no I/O, no random source, nothing shared between objects.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from orchestrator.model import Placement
from orchestrator.policy.demand import MoveLimits, Running
from orchestrator.policy.slack.planner import Planner, Situation, Terms
from orchestrator.policy.tick_market import ON_DEMAND, SPOT, TickAdapter, TickPlace, require_valid, speeds

_EPS = 1e-9
_STAY_H = 4.0  # expected lifetime of a spot machine before any was seen; counts as one loss
_PRICE_H = 4.0  # how long a price is assumed to hold when it argues for leaving a running machine
_DAY_MS = 86_400_000


class OnlinePolicy(Protocol):
    """A policy as `make` returns it: one object per simulation."""

    name: str

    def start(self, job: Any, market: Any) -> None:
        """Set up for one job on one market. Raises ValueError if either is not valid."""
        ...

    def step(self, observation: Any, cloud: Any) -> None:
        """Look at one tick's observation and act on the cloud (try_launch, terminate)."""
        ...


def make(name: str = "deadline", **options: Any) -> OnlinePolicy:
    """A fresh policy.

    "deadline"  the least expected cost that meets the deadline, by a stochastic dynamic program (policy/slack)
    "daily"     spot where `decide` ranks it first, waiting for it; on-demand only at the last safe tick
    "decide"    as in production: the plan of `decide`, which knows the deadline, at every decision

    Option `replan_hours` of the last two: how often the placement of a running job is decided again (24 and 1).
    Raises ValueError for an unknown name, TypeError for an unknown option.
    """
    if name not in _POLICIES:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(sorted(_POLICIES))}")
    return _POLICIES[name](name=name, **options)


@dataclass
class _Ticking(ABC):
    """What all policies share: tick arithmetic, the last safe tick, and a record of what was observed."""

    name: str
    replan_hours: float = 24.0

    def start(self, job: Any, market: Any) -> None:
        """See OnlinePolicy.start."""
        self.adapter = TickAdapter(job, market)
        self._work_h, self._overhead_h = float(job.work_hours), float(job.restart_overhead_hours)
        self._tick_h = float(market.tick_hours)
        self._on_demand = tuple(float(price) for price in market.on_demand_usd_per_hour)
        size = float(job.checkpoint_gb)
        self._egress = tuple(tuple(float(cell) * size for cell in row) for row in market.egress_usd_per_gb)
        self._stayed_h, self._lost = _STAY_H, 1
        self._looked: tuple[Any, ...] = ()
        self._up: TickPlace | None = None
        self._since_ms = self._planned_ms = 0
        self._moves_ms: list[int] = []
        self._orders: dict[str, tuple[tuple[Any, ...], list[int]]] = {}

    def step(self, seen: Any, cloud: Any) -> None:
        """See OnlinePolicy.step."""
        running = None if seen.running is None else (int(seen.running[0]), str(seen.running[1]))
        if self._up is not None and self._up[1] == SPOT:
            self._stayed_h += self._tick_h
            self._lost += bool(seen.preempted)
        if self._up is not None and running != self._up:
            self.adapter.saw(seen, self._up, "lost" if seen.preempted else "released")
        self._up = running
        self._act(seen, cloud)

    @abstractmethod
    def _act(self, seen: Any, cloud: Any) -> None:
        """Act on one tick, after its observation was recorded."""

    def _late(self, seen: Any, overheads: float = 1.0) -> bool:
        """Whether this many restart overheads and the remaining work fill all remaining ticks but one."""
        return self._ticks(seen, max(self.adapter.speed), overheads) + 1 >= int(seen.ticks_left)

    def _ticks(self, seen: Any, speed: float, overheads: float) -> int:
        """Ticks for this many restart overheads and the remaining work at a speed, without interruption."""
        left_h = (self._work_h - float(seen.done_hours)) / speed + overheads * self._overhead_h
        return math.ceil(left_h / self._tick_h - _EPS)

    def _must_buy(self, seen: Any) -> bool:
        """Whether on-demand is needed now: progress at full speed uses up no slack, anything else must end at the last
        safe tick."""
        if self._up is None or self._up[1] != SPOT:
            return self._late(seen)
        steady = float(seen.overhead_left_hours) <= 0 and self.adapter.speed[self._up[0]] == max(self.adapter.speed)
        return not steady and self._late(seen)

    def _hours(self, seen: Any, zone: int, most: float) -> float:
        """Hours for which a machine there is useful: until the work is done, at most `most`, at least one tick."""
        left_h = (self._work_h - float(seen.done_hours)) / self.adapter.speed[zone]
        return max(min(left_h, most), self._tick_h)

    def _egress_usd(self, seen: Any, zone: int) -> float:
        """USD to bring the checkpoint to a zone."""
        here = seen.checkpoint_zone
        return 0.0 if here is None else self._egress[int(here)][zone]

    def _bought(self, seen: Any, overhead_h: float = 0.0, most: float = math.inf) -> float:
        """USD per hour of work on the cheapest on-demand offer, with egress and a restart spread over `most` hours."""
        rates = []
        for zone, price in enumerate(self._on_demand):
            extra = self._egress_usd(seen, zone) + overhead_h * price
            rates.append((price + extra / self._hours(seen, zone, most)) / self.adapter.speed[zone])
        return min(rates)

    def _worth(self, seen: Any, zone: int) -> bool:
        """Whether spot there costs less than the same work on demand, even with egress paid twice in the expected stay.
        (Waiting for spot where the checkpoint is often avoids the egress.)"""
        stay_h = self._hours(seen, zone, self._stayed_h / self._lost)
        price = float(seen.spot_usd_per_hour[zone]) + 2 * self._egress_usd(seen, zone) / stay_h
        return price / self.adapter.speed[zone] < self._bought(seen)

    def _overpriced(self, seen: Any) -> bool:
        """Whether the job runs on spot that now costs more than on-demand, including the restart to get there."""
        if self._up is None or self._up[1] != SPOT:
            return False
        zone = self._up[0]
        bought = self._bought(seen, self._overhead_h, _PRICE_H)
        return float(seen.spot_usd_per_hour[zone]) / self.adapter.speed[zone] > bought

    def _undercut(self, seen: Any) -> bool:
        """Whether another zone's spot price is so much lower that a move there would soon pay for itself twice."""
        if self._up is None or self._up[1] != SPOT:
            return False
        here, speed, asks = self._up[0], self.adapter.speed, [float(price) for price in seen.spot_usd_per_hour]
        return any(
            (asks[here] * speed[zone] / speed[here] - asks[zone]) * self._hours(seen, zone, _PRICE_H)
            > 2 * (self._egress_usd(seen, zone) + self._overhead_h * asks[zone])
            for zone in range(self.adapter.zones)
        )

    def _stop(self, seen: Any, cloud: Any) -> None:
        if self._up is not None:
            self.adapter.saw(seen, self._up, "released")
            self._up = None
            cloud.terminate()

    def _launch(self, seen: Any, cloud: Any, place: TickPlace) -> bool:
        if not cloud.try_launch(*place):
            return False
        if self._up is not None:
            self.adapter.saw(seen, self._up, "released")
            self._moves_ms.append(self.adapter.at_ms(seen))
        self.adapter.saw(seen, place, "launched")
        self._up, self._since_ms = place, self.adapter.at_ms(seen)
        return True

    def _buy(self, seen: Any, cloud: Any) -> None:
        """Rent on-demand in the zone that `decide` prefers among those fast enough for the deadline, or the fastest."""
        if self._up is None or self._up[1] != ON_DEMAND:
            order, speed, left = self._order(seen, ON_DEMAND), self.adapter.speed, int(seen.ticks_left)
            quick = [zone for zone in order if self._ticks(seen, speed[zone], 1.0) <= left]
            fastest = [zone for zone in order if speed[zone] == max(speed)]
            self._launch(seen, cloud, ((quick or fastest)[0], ON_DEMAND))

    def _order(self, seen: Any, kind: str) -> list[int]:
        """Zones in the order of `decide`. Asked again when prices, observations or the checkpoint's zone change, or
        after an hour, when a lost zone may be worth another try."""
        hour = int(seen.elapsed_hours)
        facts = (tuple(seen.spot_usd_per_hour), len(self.adapter.points), seen.checkpoint_zone, hour)
        known = self._orders.get(kind)
        if known is None or known[0] != facts:
            known = (facts, self.adapter.order(self.adapter.plan(seen, (kind,)), kind))
            self._orders[kind] = known
        return known[1]

    def _running(self, seen: Any) -> Running | None:
        if self._up is None:
            return None
        now = self.adapter.at_ms(seen)
        last = self._moves_ms[-1] if self._moves_ms else None
        today = sum(at > now - _DAY_MS for at in self._moves_ms)
        return Running(self.adapter.offers[self._up].id, self._since_ms, last, today)

    def _due(self, seen: Any) -> bool:
        """Whether to reconsider a running job: `replan_hours` have passed, or its price is now far above others."""
        now, asks = self.adapter.at_ms(seen), tuple(seen.spot_usd_per_hour)
        early = now - max(self._planned_ms, self._since_ms) < self.replan_hours * 3_600_000
        if early and (asks == self._looked or not (self._overpriced(seen) or self._undercut(seen))):
            return False
        self._planned_ms, self._looked = now, asks
        return True


@dataclass
class _Daily(_Ticking):
    """Waits for spot until on-demand is needed for the deadline."""

    def _act(self, seen: Any, cloud: Any) -> None:
        if self._up is not None and self._up[1] == ON_DEMAND:
            return
        if self._must_buy(seen):
            self._buy(seen, cloud)
        elif self._up is None:
            self._try_spot(seen, cloud)
        elif self._overpriced(seen):
            self._leave(seen, cloud)
        else:
            self._reconsider(seen, cloud)

    def _try_spot(self, seen: Any, cloud: Any) -> bool:
        zones = [zone for zone in self._order(seen, SPOT) if self._worth(seen, zone)]
        return any(self._launch(seen, cloud, (zone, SPOT)) for zone in zones)

    def _leave(self, seen: Any, cloud: Any) -> None:
        """Leave a machine that costs more than on-demand: for other spot, or wait while there is slack, or rent
        on-demand. Stay if even on-demand would miss the deadline after a restart."""
        if self._late(seen, 2.0):
            if self._ticks(seen, max(self.adapter.speed), 1.0) <= int(seen.ticks_left):
                self._buy(seen, cloud)
        elif not self._try_spot(seen, cloud):
            self._stop(seen, cloud)

    def _reconsider(self, seen: Any, cloud: Any) -> None:
        """Move voluntarily if `decide` finds that it pays, but not if that would use up the last slack."""
        if self._due(seen) and not self._late(seen, 2.0):
            placement = self.adapter.plan(seen, (SPOT,), self._running(seen)).placements[0]
            if placement.action == "move" and placement.offer_id is not None:
                place = self.adapter.location_of[placement.offer_id]
                if self._worth(seen, place[0]):
                    self._launch(seen, cloud, place)


@dataclass
class _Deadline:
    """Carries out what the planner ranks first. A launch without capacity is an input to the next ranking."""

    name: str

    def start(self, job: Any, market: Any) -> None:
        """See OnlinePolicy.start."""
        require_valid(job, market)
        self._work_h = float(job.work_hours)
        self._planner = Planner(
            Terms(
                restart_h=float(job.restart_overhead_hours),
                tick_h=float(market.tick_hours),
                on_demand_usd=tuple(map(float, market.on_demand_usd_per_hour)),
                egress_usd=np.array(market.egress_usd_per_gb, dtype=float) * float(job.checkpoint_gb),
                speed=speeds(market),
                probe_h=float(getattr(market, "probe_hours", 0.0)),
            )
        )
        self._kept: int | None = None

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
        """The zone where a spot machine now runs, if one does."""
        while True:
            best = self._planner.options(now)[0]
            if best.action == "stay":
                return now.running[0] if now.running is not None and now.running[1] else None
            if best.action == "wait":
                if now.running is not None:
                    cloud.terminate()
                return None
            kind = SPOT if best.action == "spot" else ON_DEMAND
            launched = cloud.try_launch(best.pool, kind)
            if kind == ON_DEMAND:
                return None
            assert best.pool is not None
            self._planner.spells.saw(best.pool, bool(launched), now.now_h)
            if launched:
                return best.pool


@dataclass
class _Live(_Ticking):
    """Carries the plan out as it is; a refused launch is an input to the next decision in the same tick."""

    replan_hours: float = 1.0

    def _act(self, seen: Any, cloud: Any) -> None:
        if self._must_buy(seen):
            self._buy(seen, cloud)
            return
        if self._up is not None and not self._due(seen):
            return
        for _ in range(2 * self.adapter.zones):
            plan = self.adapter.plan(seen, (SPOT, ON_DEMAND), self._running(seen), deadline=True, limits=MoveLimits())
            placement = plan.placements[0]
            if placement.action == "wait":
                self._stop(seen, cloud)
                return
            if placement.action not in ("place", "move") or placement.offer_id is None:
                return
            place = self.adapter.location_of[placement.offer_id]
            if place[1] == SPOT and not self._worth(seen, place[0]):
                if self._overpriced(seen):
                    self._buy(seen, cloud)
                elif self._up is None:
                    self._second(seen, cloud, placement)
                return
            if self._launch(seen, cloud, place):
                return
            self.adapter.saw(seen, place, "refused")

    def _second(self, seen: Any, cloud: Any, placement: Placement) -> None:
        """Launch the plan's first alternative that is worth its price; on-demand always is."""
        places = (self.adapter.location_of[each.offer_id] for each in placement.alternatives)
        worth = (place for place in places if place[1] == ON_DEMAND or self._worth(seen, place[0]))
        any(self._launch(seen, cloud, place) for place in worth)


_POLICIES: dict[str, type[_Ticking] | type[_Deadline]] = {"daily": _Daily, "deadline": _Deadline, "decide": _Live}
