"""The live policy for a deadline, driven tick by tick by any simulator.

    policy = make()                      # a fresh object for each simulation
    policy.start(job, market)            # once
    policy.step(observation, cloud)      # at every tick

The protocol's objects belong to the caller and are read by attribute: job (work_hours, restart_overhead_hours,
checkpoint_gb), market (zones, on_demand_usd_per_hour, egress_usd_per_gb, tick_hours, and probe_hours if probes are
billed), observation (elapsed_hours, ticks_left, done_hours, running, overhead_left_hours, preempted,
spot_usd_per_hour, checkpoint_zone) and cloud (try_launch, probe, terminate). If a market has a `speed` for each zone
(hours of work per hour; not part of the protocol), its machines are of several kinds.

This module only translates: observations for the planner (policy/slack), and what the planner ranks first into calls.
A launch that finds no capacity is an observation, too. Pure: no clock, no I/O, no random source, nothing shared
between objects.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from orchestrator.policy.slack.planner import Planner, Situation, Terms

NAME = "deadline"
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


def make(name: str = NAME) -> OnlinePolicy:
    """A fresh policy: the least expected cost that meets the deadline. Raises ValueError for any other name."""
    if name != NAME:
        raise ValueError(f"unknown policy {name!r}; known: {NAME}")
    return _Deadline()


class _Deadline:
    """Carries out what the planner ranks first. A launch without capacity is an input to the next ranking."""

    name = NAME

    def start(self, job: Any, market: Any) -> None:
        """See OnlinePolicy.start."""
        on_demand_usd = tuple(map(float, market.on_demand_usd_per_hour))
        self._work_h = float(job.work_hours)
        self._planner = Planner(
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
