"""SkyNomad's cost model (NSDI '27, arXiv 2601.06520) as implemented in its artifact, in the two variants of its
figures.

An hour in a zone is worth V x (E - d) / E - price - egress / E, with E the expected lifetime of a machine there
(lifetimes.py), d the restart overhead and V the value of an hour's progress. It moves when that exceeds the value of
the current machine by a margin, and probes zones to learn about them. A safety net switches to on-demand at the last
safe tick.

Kept as implemented, because the published results depend on it: a machine running at a loss is not stopped; a zone that
answered a probe is not probed again before a launch was tried there; the run of a zone left for spot elsewhere stays
open; a machine that took over from on-demand in its zone is not counted when it is lost.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from orchestrator.arena.baselines.lifetimes import Lifetimes
from orchestrator.arena.baselines.simple import Latched
from orchestrator.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation, TickJob, TickMarket

_MARKUP = 1.2
_PROBE_TICKS = 6
_RATE_WINDOW_H = 10.0
_MARGIN_USD, _MARGIN_PER_GB, _MARGIN_PER_V = 0.5, 0.0002, 0.05
_MIX_USD_PER_GB = 0.02
_EPS = 1e-9


class CostModel(Latched):
    """One decision per tick: the best of waiting, spot anywhere and on-demand. Subclasses define the value of
    progress."""

    most_h = math.inf  # the longest expected lifetime
    follow = False

    def start(self, job: TickJob, market: TickMarket) -> None:
        """See Baseline.start."""
        super().start(job, market)
        self.lives = [Lifetimes(market.tick_hours, follow=self.follow) for _ in market.zones]
        self.next_probe = [0 for _ in market.zones]
        self.watched: set[int] = set()  # zones where a probe found capacity and no launch was tried since
        self.spot: int | None = None
        self.left = False  # the end of this spot machine will not count as a loss
        self.last: int | None = None  # where the checkpoint is believed to be
        self.expected: list[float] = []

    @abstractmethod
    def hour_of_progress(self, seen: Observation) -> float:
        """V: the value of an hour's progress in US$."""

    def choose(self, seen: Observation, cloud: Cloud) -> None:
        """See Latched.choose."""
        now = seen.elapsed_hours
        if self.spot is not None and seen.running != (self.spot, SPOT):
            self.lives[self.spot].end(now, lost=not self.left)
            self.spot = None
        for zone in self.lives:
            zone.tick(now)
        most = min(self.most_h, self.job.deadline_hours - now)
        self.expected = [zone.expected_h(now, most) for zone in self.lives]
        if seen.running is not None:
            self.last = seen.running[0]
        self._probe(seen, cloud, *self._launch(seen, cloud))

    def _launch(self, seen: Observation, cloud: Cloud) -> tuple[int | None, set[int]]:
        """Launch the best available option if it beats the current one. Returns the zone that must not be probed, and
        the zones without capacity."""
        value = self.hour_of_progress(seen)
        here, kind = (None, None) if seen.running is None else seen.running
        current = 0.0
        if here is not None:
            price = seen.spot_usd_per_hour[here] if kind == SPOT else self.market.on_demand_usd_per_hour[here]
            current = value * self.speed[here] - price
        margin = _MARGIN_USD + _MARGIN_PER_GB * self.job.checkpoint_gb + _MARGIN_PER_V * value
        zones = range(len(self.lives))
        options: list[tuple[float, int | None, str]] = [(0.0, None, "wait")]
        options += [(self._spot_value(seen, zone, value), zone, SPOT) for zone in zones]
        options += [(self._on_demand_value(zone, value), zone, ON_DEMAND) for zone in zones]
        refused: set[int] = set()
        for worth, zone, of in sorted(options, key=lambda option: -option[0]):
            if worth <= current or worth < 0:
                break
            if zone is None:  # as implemented: a machine at a loss continues, and its zone may be probed
                self.last = None
                return None, refused
            at_home = of == SPOT and zone == here
            if (zone, of) == seen.running or (here is not None and not at_home and worth <= current + margin):
                continue
            if of == SPOT and zone in self.watched:
                self.lives[zone].end(seen.elapsed_hours, lost=False)
                self.watched.remove(zone)
            if cloud.try_launch(zone, of):
                self._launched(seen, zone, of)
                return zone, refused
            self._refused(seen, zone)
            refused.add(zone)
        return here, refused

    def _launched(self, seen: Observation, zone: int, kind: str) -> None:
        if kind == SPOT:
            self.lives[zone].begin(seen.elapsed_hours)
            self.spot, self.left = zone, False
        self.last = zone
        if seen.running is None:
            return
        if seen.running[0] == self.spot:  # replaced by on-demand (as implemented, also one that just replaced it)
            self.left = True
        else:
            self.lives[seen.running[0]].found(seen.elapsed_hours, up=False)

    def _refused(self, seen: Observation, zone: int) -> None:
        self.lives[zone].refused()
        if zone != self.spot:
            self.lives[zone].found(seen.elapsed_hours, up=False)

    def _probe(self, seen: Observation, cloud: Cloud, used: int | None, refused: set[int]) -> None:
        for zone, lives in enumerate(self.lives):
            if zone == used or zone in self.watched or zone in refused or seen.tick < self.next_probe[zone]:
                continue
            self.next_probe[zone] = seen.tick + _PROBE_TICKS
            if not cloud.probe(zone):
                self._refused(seen, zone)
                continue
            self.watched.add(zone)
            lives.begin(seen.elapsed_hours)
            if zone != self.spot:
                lives.found(seen.elapsed_hours, up=True)
            hours = self.market.probe_hours
            if used is None and seen.running == (zone, ON_DEMAND):  # the artifact bills this probe for the whole tick
                ratio = self.market.on_demand_usd_per_hour[zone] / seen.spot_usd_per_hour[zone]
                hours = self.market.tick_hours * ratio
            lives.probed_h += hours

    def _egress(self, zone: int) -> float:
        return 0.0 if self.last is None else self.job.checkpoint_gb * self.market.egress_usd_per_gb[self.last][zone]

    def _spot_value(self, seen: Observation, zone: int, value: float) -> float:
        life, overhead = self.expected[zone], self.job.restart_overhead_hours
        if seen.running == (zone, SPOT):
            overhead = 0.0
        if life <= overhead:
            return -1.0
        gain = value * self.speed[zone] * (life - overhead) / life
        return gain - seen.spot_usd_per_hour[zone] - self._egress(zone) / life

    def _on_demand_value(self, zone: int, value: float) -> float:
        moving = self._egress(zone)
        if self.last not in (None, zone):
            moving += self.job.restart_overhead_hours * value
        return value * self.speed[zone] - self.market.on_demand_usd_per_hour[zone] - moving

    def cheapest_on_demand(self) -> float:
        """US$ of the cheapest on-demand offer per hour of work."""
        return min(price / at for price, at in zip(self.market.on_demand_usd_per_hour, self.speed, strict=True))


class SkyNomad(CostModel):
    """RISK, the artifact's first strategy: V is 1.2 times the cost per hour of the cheapest mix of spot and on-demand,
    by availability and lifetime, that meets the deadline."""

    name = "skynomad"
    most_h = 2.0

    def start(self, job: TickJob, market: TickMarket) -> None:
        """See Baseline.start."""
        super().start(job, market)
        self.done: list[float] = []

    def choose(self, seen: Observation, cloud: Cloud) -> None:
        """See Latched.choose."""
        self.done.append(seen.done_hours)
        super().choose(seen, cloud)

    def hour_of_progress(self, seen: Observation) -> float:
        """See CostModel.hour_of_progress."""
        work, left = self.work_left(seen), self.job.deadline_hours - seen.elapsed_hours
        overhead = self.job.restart_overhead_hours
        bought = self._on_demand_share(seen) * work
        wanted = work - bought
        offers = []
        for zone, life in enumerate(self.expected):
            share = self.lives[zone].available(seen.elapsed_hours)
            if life > overhead and share > 0:
                useful = self.speed[zone] * (life - overhead) / life
                offers.append((seen.spot_usd_per_hour[zone] / useful, share * left * useful))
        cost, used = 0.0, 0
        for price, hours in sorted(offers):
            if wanted <= 0:
                break
            taken = min(hours, wanted)
            cost, wanted, used = cost + taken * price, wanted - taken, used + 1
        bought += max(wanted, 0.0)
        cost += bought * self.cheapest_on_demand()
        switches = max(used + (bought > 0) - 1, 0)
        return _MARKUP * (cost + switches * self.job.checkpoint_gb * _MIX_USD_PER_GB) / max(work, 1e-6)

    def _on_demand_share(self, seen: Observation) -> float:
        """The share of the remaining time that must be on-demand to meet the deadline at the recent pace."""
        now, done = seen.elapsed_hours, seen.done_hours
        if now <= 0:
            return 0.0
        since = max(0.0, now - _RATE_WINDOW_H)
        first = max(int(since / self.market.tick_hours + _EPS) - 1, 0)  # one tick early, as implemented
        rate = min((done - self.done[first]) / (now - since), 1.0)
        if rate >= 1.0 - 1e-6:
            return 0.0
        end = self.job.deadline_hours
        cross = (rate * now - done + self.job.work_hours + 2 * self.job.restart_overhead_hours - end) / (rate - 1.0)
        return 1.0 if cross <= 0 else min(max((end - cross) / (end - now), 0.0), 1.0)


class SkyNomadRateRatio(CostModel):
    """RR, with the settings of its V100 figure: V is the on-demand price times the pace still needed over the planned
    pace, at least the cheapest spot price; lifetimes have no limit and zones are followed."""

    name = "skynomad-rr"
    follow = True

    def hour_of_progress(self, seen: Observation) -> float:
        """See CostModel.hour_of_progress."""
        whole = self.job.deadline_hours
        ratio = self.work_left(seen) * whole / ((whole - seen.elapsed_hours) * self.job.work_hours)
        return max(self.cheapest_on_demand() * ratio, min(self.per_work(seen)))
