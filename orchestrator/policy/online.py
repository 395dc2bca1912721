"""The product's policy, driven tick by tick by anyone's simulator.

    policy = make()                      # a fresh object for each simulation
    policy.start(job, market)            # once
    policy.step(observation, cloud)      # at every tick

The protocol's objects are the caller's and are read by attribute: job (work_hours, deadline_hours,
restart_overhead_hours, checkpoint_gb), market (zones, on_demand_usd_per_hour, egress_usd_per_gb, tick_hours),
observation (tick, elapsed_hours, ticks_left, done_hours, running, overhead_left_hours, preempted, spot_usd_per_hour,
checkpoint_zone) and cloud (try_launch, terminate). Where to run is always `decide`'s answer; what is here is when to
ask it, what no price or egress may exceed (what on-demand would cost), and the deadline, which is never missed while
on-demand is there.

Pure: no clock, no I/O, no random source, nothing shared between objects.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from orchestrator.model import Placement
from orchestrator.policy.demand import MoveLimits, Running
from orchestrator.policy.tick_market import ON_DEMAND, SPOT, TickAdapter, TickPlace

_EPS = 1e-9
_STAY_H = 4.0  # how long a spot machine is expected to stay before any was seen; weighs as one that was lost
_PRICE_H = 4.0  # how long a price is trusted to hold when it calls for leaving a machine that runs
_DAY_MS = 86_400_000


class OnlinePolicy(Protocol):
    """What `make` gives."""

    name: str

    def start(self, job: Any, market: Any) -> None: ...

    def step(self, observation: Any, cloud: Any) -> None: ...


def make(name: str = "deadline", **options: Any) -> OnlinePolicy:
    """A fresh policy.

    "deadline"  spot where `decide` ranks it first; on-demand while progress lags behind the share of time gone
    "daily"     spot where `decide` ranks it first, waiting for it; on-demand only at the last safe tick
    "decide"    as live: the plan of `decide`, with the deadline told to it, at every decision

    Option `replan_hours`: how often a job that runs is decided anew (24, 24 and 1). Raises ValueError for an unknown
    name, TypeError for an unknown option.
    """
    if name not in _POLICIES:
        raise ValueError(f"no policy is called {name!r}; there are {', '.join(sorted(_POLICIES))}")
    return _POLICIES[name](name=name, **options)


@dataclass
class _Ticking(ABC):
    """What all of them do: the arithmetic of ticks, the last safe tick, and remembering what was seen."""

    name: str
    replan_hours: float = 24.0

    def start(self, job: Any, market: Any) -> None:
        self.adapter = TickAdapter(job, market)
        self._work_h, self._overhead_h = float(job.work_hours), float(job.restart_overhead_hours)
        self._deadline_h, self._tick_h = float(job.deadline_hours), float(market.tick_hours)
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
        """What this policy orders at a tick, once what was seen is remembered."""

    def _late(self, seen: Any, overheads: float = 1.0) -> bool:
        """So many overheads and the work left fill all ticks that are left but one."""
        return self._ticks(seen, max(self.adapter.speed), overheads) + 1 >= int(seen.ticks_left)

    def _ticks(self, seen: Any, speed: float, overheads: float) -> int:
        """Ticks to sit out so many overheads and finish at a speed, without interruption."""
        left_h = (self._work_h - float(seen.done_hours)) / speed + overheads * self._overhead_h
        return math.ceil(left_h / self._tick_h - _EPS)

    def _behind(self, seen: Any, ahead_h: float = 0.0) -> bool:
        """Progress lags behind the share of time that is gone so many hours from now."""
        gone = float(seen.elapsed_hours) + ahead_h
        return float(seen.done_hours) < gone * (self._work_h / self._deadline_h)

    def _must_buy(self, seen: Any) -> bool:
        """What makes progress at full speed uses up no slack; anything else must be on demand by the last safe tick."""
        if self._up is None or self._up[1] != SPOT:
            return self._late(seen)
        steady = float(seen.overhead_left_hours) <= 0 and self.adapter.speed[self._up[0]] == max(self.adapter.speed)
        return not steady and self._late(seen)

    def _hours(self, seen: Any, zone: int, most: float) -> float:
        """How long a machine there is of use: till the work is done, at most so long, at least a tick."""
        left_h = (self._work_h - float(seen.done_hours)) / self.adapter.speed[zone]
        return max(min(left_h, most), self._tick_h)

    def _toll(self, seen: Any, zone: int) -> float:
        """USD to bring the checkpoint to a zone."""
        here = seen.checkpoint_zone
        return 0.0 if here is None else self._egress[int(here)][zone]

    def _bought(self, seen: Any, overhead_h: float = 0.0, most: float = math.inf) -> float:
        """USD per hour of work on demand where that is cheapest, egress and a restart spread over so many hours."""
        rates = []
        for zone, price in enumerate(self._on_demand):
            toll = self._toll(seen, zone) + overhead_h * price
            rates.append((price + toll / self._hours(seen, zone, most)) / self.adapter.speed[zone])
        return min(rates)

    def _worth(self, seen: Any, zone: int) -> bool:
        """Spot there costs less than the same work on demand, even if egress has to be paid twice in the expected stay:
        who waits for spot where the checkpoint is often gets there without."""
        stay_h = self._hours(seen, zone, self._stayed_h / self._lost)
        price = float(seen.spot_usd_per_hour[zone]) + 2 * self._toll(seen, zone) / stay_h
        return price / self.adapter.speed[zone] < self._bought(seen)

    def _dear(self, seen: Any) -> bool:
        """It runs on spot that by now costs more than on-demand would, with the restart to get there."""
        if self._up is None or self._up[1] != SPOT:
            return False
        zone = self._up[0]
        bought = self._bought(seen, self._overhead_h, _PRICE_H)
        return float(seen.spot_usd_per_hour[zone]) / self.adapter.speed[zone] > bought

    def _outbid(self, seen: Any) -> bool:
        """It runs on spot, and another zone asks so much less that a move would soon pay twice over."""
        if self._up is None or self._up[1] != SPOT:
            return False
        here, speed, asks = self._up[0], self.adapter.speed, [float(price) for price in seen.spot_usd_per_hour]
        return any(
            (asks[here] * speed[zone] / speed[here] - asks[zone]) * self._hours(seen, zone, _PRICE_H)
            > 2 * (self._toll(seen, zone) + self._overhead_h * asks[zone])
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
        """On-demand where `decide` wants it, of the kinds that make the deadline, or of the fastest."""
        if self._up is None or self._up[1] != ON_DEMAND:
            order, speed, left = self._order(seen, ON_DEMAND), self.adapter.speed, int(seen.ticks_left)
            quick = [zone for zone in order if self._ticks(seen, speed[zone], 1.0) <= left]
            fastest = [zone for zone in order if speed[zone] == max(speed)]
            self._launch(seen, cloud, ((quick or fastest)[0], ON_DEMAND))

    def _order(self, seen: Any, kind: str) -> list[int]:
        """Zones as `decide` ranks them; asked again when prices, sightings or the checkpoint's place changed, or after
        an hour, when a zone that was lost may be worth a try again."""
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
        """It is time to look at a job that runs: so long after the last look, or new prices are far above others."""
        now, asks = self.adapter.at_ms(seen), tuple(seen.spot_usd_per_hour)
        early = now - max(self._planned_ms, self._since_ms) < self.replan_hours * 3_600_000
        if early and (asks == self._looked or not (self._dear(seen) or self._outbid(seen))):
            return False
        self._planned_ms, self._looked = now, asks
        return True


@dataclass
class _Daily(_Ticking):
    """Greedy in time: waits for spot until on-demand must step in."""

    _patient: ClassVar[bool] = True

    def _act(self, seen: Any, cloud: Any) -> None:
        if self._up is not None and self._up[1] == ON_DEMAND:
            return
        if self._must_buy(seen):
            self._buy(seen, cloud)
        elif self._up is None:
            self._try_spot(seen, cloud)
        elif self._dear(seen):
            self._leave(seen, cloud)
        else:
            self._reconsider(seen, cloud)

    def _try_spot(self, seen: Any, cloud: Any) -> bool:
        zones = [zone for zone in self._order(seen, SPOT) if self._worth(seen, zone)]
        return any(self._launch(seen, cloud, (zone, SPOT)) for zone in zones)

    def _leave(self, seen: Any, cloud: Any) -> None:
        """Off a machine that costs more than on-demand: to other spot, else to wait while there is slack, else to buy;
        where not even on-demand would make the deadline after a restart, it stays."""
        if self._late(seen, 2.0):
            if self._ticks(seen, max(self.adapter.speed), 1.0) <= int(seen.ticks_left):
                self._buy(seen, cloud)
        elif not self._try_spot(seen, cloud):
            if self._patient or not self._behind(seen):
                self._stop(seen, cloud)
            else:
                self._buy(seen, cloud)

    def _reconsider(self, seen: Any, cloud: Any) -> None:
        """A voluntary move, where `decide` finds that it pays; not when it would use up the last slack."""
        if self._due(seen) and not self._late(seen, 2.0):
            placement = self.adapter.plan(seen, (SPOT,), self._running(seen)).placements[0]
            if placement.action == "move" and placement.offer_id is not None:
                place = self.adapter.location_of[placement.offer_id]
                if self._worth(seen, place[0]):
                    self._launch(seen, cloud, place)


@dataclass
class _Deadline(_Daily):
    """Uniform Progress (Can't Be Late, NSDI '24) says when to be on demand; `decide` says where."""

    _patient: ClassVar[bool] = False

    def _act(self, seen: Any, cloud: Any) -> None:
        kind = None if self._up is None else self._up[1]
        if kind == SPOT:
            super()._act(seen, cloud)
            return
        if self._late(seen, 2.0):
            self._buy(seen, cloud)
            return
        if kind == ON_DEMAND and self._behind(seen, 2 * self._overhead_h):
            return
        if not self._try_spot(seen, cloud) and kind is None and self._behind(seen):
            self._buy(seen, cloud)


@dataclass
class _Live(_Ticking):
    """The plan is carried out as it is; a refused launch is a fact for the next decision of the same tick."""

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
                if self._dear(seen):
                    self._buy(seen, cloud)
                elif self._up is None:
                    self._second(seen, cloud, placement)
                return
            if self._launch(seen, cloud, place):
                return
            self.adapter.saw(seen, place, "refused")

    def _second(self, seen: Any, cloud: Any, placement: Placement) -> None:
        """The plan's first alternative that is worth its price; on-demand always is."""
        places = (self.adapter.location_of[each.offer_id] for each in placement.alternatives)
        worth = (place for place in places if place[1] == ON_DEMAND or self._worth(seen, place[0]))
        any(self._launch(seen, cloud, place) for place in worth)


_POLICIES: dict[str, type[_Ticking]] = {"daily": _Daily, "deadline": _Deadline, "decide": _Live}
