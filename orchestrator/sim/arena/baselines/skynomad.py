"""SkyNomad's cost model (NSDI '27, arXiv 2601.06520), from its paper and artifact; without its burst correction.

An hour in a zone is worth V x (E - d) / E - price - egress / E, with E the expected lifetime of an instance there
(Nelson-Aalen over the lifetimes seen, at most two hours), d the restart overhead and V the value of an hour's progress:
1.2 times what an hour would cost in a mix of spot and on-demand that still makes the deadline. It moves when that beats
what runs by a margin, and probes zones to learn of them. On-demand steps in at the last safe tick, for good.

Must not know: the future.
"""

from __future__ import annotations

import math

from orchestrator.sim.arena.baselines.simple import Baseline
from orchestrator.sim.arena.protocol import ON_DEMAND, SPOT, Cloud, Observation, TickJob, TickMarket

_CAP_H = 2.0
_MARKUP = 1.2
_PROBE_TICKS = 6
_WINDOW_H, _RATE_WINDOW_H = 12.0, 10.0
_MARGIN_USD, _MARGIN_PER_GB, _MARGIN_PER_V = 0.5, 0.0002, 0.05


class SkyNomad(Baseline):
    """One decision a tick: the best of waiting, spot anywhere and on-demand."""

    name = "skynomad"

    def start(self, job: TickJob, market: TickMarket) -> None:
        super().start(job, market)
        zones = range(len(market.zones))
        self.ended: list[list[tuple[float, float, bool]]] = [[] for _ in zones]  # begin, end, lost
        self.open: list[float | None] = [None for _ in zones]  # begin of a run, real or probed
        self.next_probe = [0 for _ in zones]
        self.done: list[float] = []
        self.spot: int | None = None

    def step(self, seen: Observation, cloud: Cloud) -> None:
        self.done.append(seen.done_hours)
        if self.spot is not None and seen.running != (self.spot, SPOT):
            self._end(self.spot, seen.elapsed_hours, lost=seen.preempted)
            self.spot = None
        kind = None if seen.running is None else seen.running[1]
        steady = kind == SPOT and self.steady(seen)
        if self.ticks_needed(seen, self.job.restart_overhead_hours) + 1 >= seen.ticks_left and not steady:
            self.buy(seen, cloud)
            return
        failed = self._launch(seen, cloud, kind)
        for zone in range(len(self.market.zones)):
            if self.open[zone] is None and zone not in failed and seen.tick >= self.next_probe[zone]:
                self.next_probe[zone] = seen.tick + _PROBE_TICKS
                if zone != self.spot and cloud.probe(zone):
                    self.open[zone] = seen.elapsed_hours

    def _launch(self, seen: Observation, cloud: Cloud, kind: str | None) -> set[int]:
        """The best option that can be had, if it beats what runs. Returns the zones that had no capacity."""
        value = self._hour_of_progress(seen)
        here = None if seen.running is None else seen.running[0]
        current = 0.0
        if here is not None:
            price = seen.spot_usd_per_hour[here] if kind == SPOT else self.market.on_demand_usd_per_hour[here]
            current = value * self.speed[here] - price
            current += _MARGIN_USD + _MARGIN_PER_GB * self.job.checkpoint_gb + _MARGIN_PER_V * value
        options = [(self._spot_value(seen, zone, value), zone, SPOT) for zone in range(len(self.market.zones))]
        options += [(self._on_demand_value(seen, zone, value), zone, ON_DEMAND) for zone in range(len(self.open))]
        failed: set[int] = set()
        for worth, zone, of in sorted(options, key=lambda option: (-option[0], option[1])):
            if worth <= current or worth < 0:
                break
            if seen.running == (zone, of):
                continue
            if cloud.try_launch(zone, of):
                if self.spot is not None:
                    self._end(self.spot, seen.elapsed_hours, lost=False)
                self._end(zone, seen.elapsed_hours, lost=False)
                self.spot = zone if of == SPOT else None
                self.open[zone] = seen.elapsed_hours if of == SPOT else None
                break
            failed.add(zone)
        return failed

    def _end(self, zone: int, now: float, *, lost: bool) -> None:
        begin = self.open[zone]
        if begin is not None:
            self.ended[zone].append((begin, now, lost))
        self.open[zone] = None

    def _egress(self, seen: Observation, zone: int) -> float:
        here = seen.checkpoint_zone
        return 0.0 if here is None else self.job.checkpoint_gb * self.market.egress_usd_per_gb[here][zone]

    def _spot_value(self, seen: Observation, zone: int, value: float) -> float:
        life = self._lifetime(seen, zone)
        overhead = self.job.restart_overhead_hours
        if life <= overhead:
            return -math.inf
        gain = value * self.speed[zone] * (life - overhead) / life
        return gain - seen.spot_usd_per_hour[zone] - self._egress(seen, zone) / life

    def _on_demand_value(self, seen: Observation, zone: int, value: float) -> float:
        moving = self._egress(seen, zone)
        if seen.checkpoint_zone not in (None, zone):
            moving += self.job.restart_overhead_hours * value
        return value * self.speed[zone] - self.market.on_demand_usd_per_hour[zone] - moving

    def _lifetime(self, seen: Observation, zone: int) -> float:
        """Expected hours that an instance there still lives, by Nelson-Aalen; the cap where none was ever lost."""
        begin = self.open[zone]
        age = 0.0 if begin is None else seen.elapsed_hours - begin
        lives = sorted((end - start, lost) for start, end, lost in self.ended[zone])
        mean, survives, at, hazard = 0.0, 1.0, age, 0.0
        for index, (length, lost) in enumerate(lives):
            if not lost:
                continue
            hazard = 1.0 / (len(lives) - index)
            if length > at:
                mean += survives * (length - at)
                survives *= math.exp(-hazard)
                at = length
        left = self.market.tick_hours * seen.ticks_left
        if hazard == 0.0:
            return min(_CAP_H, left)
        return min(mean + survives * self.market.tick_hours / (1 - math.exp(-hazard)), _CAP_H, left)

    def _available(self, seen: Observation, zone: int) -> float:
        """Share of the last 12 hours that a run, real or probed, was up there."""
        now = seen.elapsed_hours
        since = max(0.0, now - _WINDOW_H)
        runs = [(start, end) for start, end, _ in self.ended[zone]]
        begin = self.open[zone]
        if begin is not None:
            runs.append((begin, now))
        up = sum(max(0.0, end - max(start, since)) for start, end in runs)
        return min(1.0, up / (now - since)) if now > since else 0.0

    def _hour_of_progress(self, seen: Observation) -> float:
        """V: 1.2 times the price of an hour in the cheapest mix of spot and on-demand that makes the deadline."""
        work, left = self.work_left(seen), self.market.tick_hours * seen.ticks_left
        overhead = self.job.restart_overhead_hours
        bought = self._on_demand_share(seen) * work
        on_demand = min(price / at for price, at in zip(self.market.on_demand_usd_per_hour, self.speed, strict=True))
        cost = bought * on_demand
        wanted = work - bought
        offers = []
        for zone in range(len(self.market.zones)):
            life, share = self._lifetime(seen, zone), self._available(seen, zone)
            if life > overhead and share > 0:
                useful = self.speed[zone] * (life - overhead) / life
                offers.append((seen.spot_usd_per_hour[zone] / useful, share * left * useful))
        used = 0
        for price, hours in sorted(offers):
            if wanted <= 0:
                break
            taken = min(hours, wanted)
            cost, wanted, used = cost + taken * price, wanted - taken, used + 1
        cost += max(wanted, 0.0) * on_demand
        switches = max(used + (bought + max(wanted, 0.0) > 0) - 1, 0)
        return _MARKUP * (cost + switches * self.job.checkpoint_gb * 0.02) / max(work, 1e-6)

    def _on_demand_share(self, seen: Observation) -> float:
        """At the pace of the last hours, the share of the time left that must be on demand to make the deadline."""
        now, done = seen.elapsed_hours, seen.done_hours
        if now <= 0:
            return 0.0
        back = max(0, seen.tick - round(_RATE_WINDOW_H / self.market.tick_hours))
        rate = min((done - self.done[back]) / ((seen.tick - back) * self.market.tick_hours), 1.0)
        if rate >= 1.0 - 1e-6:
            return 0.0
        end = self.job.deadline_hours
        cross = (rate * now - done + self.job.work_hours + 2 * self.job.restart_overhead_hours - end) / (rate - 1.0)
        return min(max((end - cross) / (end - now), 0.0), 1.0)
