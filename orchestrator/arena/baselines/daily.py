"""The product's choice of place without the value of slack: `decide` ranks the spot offers, and the job waits for them
until the last safe tick."""

from __future__ import annotations

import math
from typing import Any

from orchestrator.arena.baselines.simple import Baseline
from orchestrator.arena.baselines.tick_market import TickAdapter, TickPlace
from orchestrator.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation, TickJob, TickMarket
from orchestrator.policy.demand import Running

_STAY_H = 4.0  # expected lifetime of a spot machine before any was seen; counts as one loss
_PRICE_H = 4.0  # how long a price is assumed to hold when it speaks for leaving a running machine
_DAY_MS = 86_400_000


class Daily(Baseline):
    """Spot where `decide` ranks it first, chosen again every `replan_hours`; on-demand for good at the last safe tick.
    Spot is paid only up to the price of on-demand, egress included."""

    name = "daily"

    def __init__(self, replan_hours: float = 24.0) -> None:
        self.replan_hours = replan_hours

    def start(self, job: TickJob, market: TickMarket) -> None:
        """See Baseline.start."""
        super().start(job, market)
        self.adapter = TickAdapter(job, market, self.speed)
        self._stayed_h, self._lost = _STAY_H, 1
        self._looked: tuple[float, ...] = ()
        self._up: TickPlace | None = None
        self._since_ms = self._planned_ms = 0
        self._moves_ms: list[int] = []
        self._orders: dict[str, tuple[tuple[Any, ...], list[int]]] = {}

    def step(self, seen: Observation, cloud: Cloud) -> None:
        """See Baseline.step."""
        if self._up is not None and self._up[1] == SPOT:
            self._stayed_h += self.market.tick_hours
            self._lost += seen.preempted
        if self._up is not None and seen.running != self._up:
            self.adapter.saw(seen, self._up, "lost" if seen.preempted else "released")
        self._up = seen.running
        if self._up is not None and self._up[1] == ON_DEMAND:
            return
        if self.late(seen) and not self.steady(seen):
            self._buy(seen, cloud)
        elif self._up is None:
            self._try_spot(seen, cloud)
        elif self._overpriced(seen):
            self._leave(seen, cloud)
        else:
            self._reconsider(seen, cloud)

    def _try_spot(self, seen: Observation, cloud: Cloud) -> bool:
        zones = [zone for zone in self._order(seen, SPOT) if self._worth(seen, zone)]
        return any(self._launch(seen, cloud, (zone, SPOT)) for zone in zones)

    def _buy(self, seen: Observation, cloud: Cloud) -> None:
        """Rent on-demand in the zone that `decide` prefers among those fast enough for the deadline, or the fastest."""
        order, overhead_h = self._order(seen, ON_DEMAND), self.job.restart_overhead_hours
        quick = [zone for zone in order if self.ticks_needed(seen, overhead_h, zone) <= seen.ticks_left]
        fastest = [zone for zone in order if self.speed[zone] == max(self.speed)]
        self._launch(seen, cloud, ((quick or fastest)[0], ON_DEMAND))

    def _leave(self, seen: Observation, cloud: Cloud) -> None:
        """Leave a machine that costs more than on-demand: for other spot, or wait while there is slack, or rent
        on-demand. Stay if even on-demand would miss the deadline after a restart."""
        if self.late(seen, 2.0):
            if not self.ticks_needed(seen, self.job.restart_overhead_hours) > seen.ticks_left:
                self._buy(seen, cloud)
        elif not self._try_spot(seen, cloud) and self._up is not None:
            self.adapter.saw(seen, self._up, "released")
            self._up = None
            cloud.terminate()

    def _reconsider(self, seen: Observation, cloud: Cloud) -> None:
        """Move voluntarily if `decide` finds that it pays, but not if that would use up the last slack."""
        if self._due(seen) and not self.late(seen, 2.0):
            placement = self.adapter.plan(seen, SPOT, self._running(seen)).placements[0]
            if placement.action == "move" and placement.offer_id is not None:
                place = self.adapter.location_of[placement.offer_id]
                if self._worth(seen, place[0]):
                    self._launch(seen, cloud, place)

    def _due(self, seen: Observation) -> bool:
        """Whether to reconsider a running job: `replan_hours` have passed, or its price is now far above others."""
        now, asks = self.adapter.at_ms(seen), seen.spot_usd_per_hour
        early = now - max(self._planned_ms, self._since_ms) < self.replan_hours * 3_600_000
        if early and (asks == self._looked or not (self._overpriced(seen) or self._undercut(seen))):
            return False
        self._planned_ms, self._looked = now, asks
        return True

    def _running(self, seen: Observation) -> Running | None:
        if self._up is None:
            return None
        now = self.adapter.at_ms(seen)
        last = self._moves_ms[-1] if self._moves_ms else None
        today = sum(at > now - _DAY_MS for at in self._moves_ms)
        return Running(self.adapter.offers[self._up].id, self._since_ms, last, today)

    def _launch(self, seen: Observation, cloud: Cloud, place: TickPlace) -> bool:
        if not cloud.try_launch(*place):
            return False
        if self._up is not None:
            self.adapter.saw(seen, self._up, "released")
            self._moves_ms.append(self.adapter.at_ms(seen))
        self.adapter.saw(seen, place, "launched")
        self._up, self._since_ms = place, self.adapter.at_ms(seen)
        return True

    def _order(self, seen: Observation, kind: str) -> list[int]:
        """Zones in the order of `decide`. Recomputed when prices, observations or the checkpoint's zone change, or
        after an hour, when a lost zone may be worth another try."""
        hour = int(seen.elapsed_hours)
        facts = (seen.spot_usd_per_hour, len(self.adapter.points), seen.checkpoint_zone, hour)
        known = self._orders.get(kind)
        if known is None or known[0] != facts:
            known = (facts, self.adapter.order(self.adapter.plan(seen, kind)))
            self._orders[kind] = known
        return known[1]

    def _hours(self, seen: Observation, zone: int, most: float) -> float:
        """Hours for which a machine there is useful: until the work is done, at most `most`, at least one tick."""
        return max(min(self.work_left(seen) / self.speed[zone], most), self.market.tick_hours)

    def _egress_usd(self, seen: Observation, zone: int) -> float:
        """USD to bring the checkpoint to a zone."""
        here = seen.checkpoint_zone
        return 0.0 if here is None else self.job.checkpoint_gb * self.market.egress_usd_per_gb[here][zone]

    def _bought(self, seen: Observation, overhead_h: float = 0.0, most: float = math.inf) -> float:
        """USD per hour of work on the cheapest on-demand offer, with egress and a restart spread over `most` hours."""
        rates = []
        for zone, price in enumerate(self.market.on_demand_usd_per_hour):
            extra = self._egress_usd(seen, zone) + overhead_h * price
            rates.append((price + extra / self._hours(seen, zone, most)) / self.speed[zone])
        return min(rates)

    def _worth(self, seen: Observation, zone: int) -> bool:
        """Whether spot there costs less than the same work on demand, even with egress paid twice in the expected stay.
        (Waiting for spot where the checkpoint is often avoids the egress.)"""
        stay_h = self._hours(seen, zone, self._stayed_h / self._lost)
        price = seen.spot_usd_per_hour[zone] + 2 * self._egress_usd(seen, zone) / stay_h
        return price / self.speed[zone] < self._bought(seen)

    def _overpriced(self, seen: Observation) -> bool:
        """Whether the job runs on spot that now costs more than on-demand, including the restart to get there."""
        if self._up is None or self._up[1] != SPOT:
            return False
        bought = self._bought(seen, self.job.restart_overhead_hours, _PRICE_H)
        return self.per_work(seen)[self._up[0]] > bought

    def _undercut(self, seen: Observation) -> bool:
        """Whether another zone's spot price is so much lower that a move there would soon pay for itself twice."""
        if self._up is None or self._up[1] != SPOT:
            return False
        here, speed, asks = self._up[0], self.speed, seen.spot_usd_per_hour
        return any(
            (asks[here] * speed[zone] / speed[here] - asks[zone]) * self._hours(seen, zone, _PRICE_H)
            > 2 * (self._egress_usd(seen, zone) + self.job.restart_overhead_hours * asks[zone])
            for zone in range(len(asks))
        )
