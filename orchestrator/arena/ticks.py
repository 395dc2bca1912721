"""Ticks: the tick clock: one job, one policy, one window of a trace -> the cost and the course of the run.

Rules: whole ticks are billed; every launch pays the full restart overhead again; a failed launch is free; a probe that
finds capacity costs `probe_ms` of that zone's spot price; egress is paid when a launch is in another zone than the
checkpoint; a preemption loses the machine but no progress. Time is counted in integer milliseconds.

A policy sees the prices of its tick, and capacity only where it tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.arena.protocol import (
    ON_DEMAND,
    SPOT,
    Observation,
    RuleBroken,
    TickJob,
    TickMarket,
    TickPolicy,
)
from orchestrator.arena.traces import Window, refused
from orchestrator.errors import TradewindError

PROBE_MS = 60_000
_HOUR = 3_600_000


class PolicyFailed(TradewindError):
    """A policy raised an error or broke the protocol. The message has the policy, the trace and the tick."""


@dataclass(frozen=True, slots=True)
class Task:
    """The work of one job in milliseconds; the protocol's TickJob has it in hours."""

    work_ms: int
    overhead_ms: int
    checkpoint_gb: float
    ticks: int

    @classmethod
    def of(
        cls,
        work_h: float,
        deadline_h: float,
        overhead_h: float,
        checkpoint_gb: float,
        tick_ms: int,
        *,
        name: str = "job",
        speed: float = 1.0,
    ) -> Task:
        """Build a task. Only ticks that end by the deadline count; `speed` is that of the fastest machine.

        Raises SpecError for figures that are not possible.
        """
        ticks = round(deadline_h * _HOUR) // tick_ms
        task = cls(round(work_h * _HOUR), round(overhead_h * _HOUR), checkpoint_gb, ticks)
        if task.work_ms <= 0 or task.overhead_ms < 0 or checkpoint_gb < 0:
            raise refused(name, 0, "work_hours", "work must be positive; overhead and checkpoint must be at least 0")
        if task.ticks_on_demand(tick_ms, speed) > ticks:
            need = task.ticks_on_demand(tick_ms, speed) * tick_ms / _HOUR
            message = f"{deadline_h:g} h is too short: the work takes {need:g} h without interruption"
            raise refused(name, 0, "deadline", message, "choose a later deadline")
        return task

    def ticks_on_demand(self, tick_ms: int, speed: float = 1.0) -> int:
        """Ticks from one launch to the end without interruption, on a machine of this speed (at least 0.0005)."""
        busy_ms = -(-self.work_ms * 1000 // round(speed * 1000))
        return -(-(busy_ms + self.overhead_ms) // tick_ms)

    def reported(self, tick_ms: int) -> TickJob:
        """The job as a policy sees it, in hours."""
        return TickJob(self.work_ms / _HOUR, self.ticks * tick_ms / _HOUR, self.overhead_ms / _HOUR, self.checkpoint_gb)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The run of one policy in one window. US$ are per machine of the gang; `track` is (zone, kind) by tick.

    `usd` is the sum of spot, on-demand, probes and egress. `useful` is the share of billed time that was progress.
    `moves` counts launches in another zone than the checkpoint's.
    """

    usd: float
    spot_usd: float
    on_demand_usd: float
    probe_usd: float
    egress_usd: float
    finished: bool
    ticks_used: int
    useful: float
    launches: int
    moves: int
    preemptions: int
    track: tuple[tuple[int, str] | None, ...]


class _Cloud:
    """The market's state for one policy."""

    def __init__(self, window: Window, task: Task, probe_ms: int) -> None:
        self.window, self.task, self.probe_ms = window, task, probe_ms
        self.tick = 0
        self.running: tuple[int, str] | None = None
        self.overhead_ms = 0
        self.checkpoint: int | None = None
        self.acted = ""
        self.probe_usd = self.egress_usd = 0.0
        self.launches = self.moves = 0

    def try_launch(self, zone: int, kind: str) -> bool:
        self._zone(zone)
        if kind not in (SPOT, ON_DEMAND):
            raise RuleBroken(f"launched {kind!r}, which is neither {SPOT!r} nor {ON_DEMAND!r}")
        if self.running == (zone, kind):
            return True
        if self.acted:
            raise RuleBroken(f"launched after it had {self.acted} in the same tick")
        if kind == SPOT and not self.window.up[zone, self.tick]:
            return False
        self.acted = "launched"
        if self.checkpoint is not None and self.checkpoint != zone:
            self.egress_usd += self.task.checkpoint_gb * float(self.window.egress[self.checkpoint, zone])
            self.moves += 1
        self.running, self.checkpoint, self.overhead_ms = (zone, kind), zone, self.task.overhead_ms
        self.launches += 1
        return True

    def probe(self, zone: int) -> bool:
        self._zone(zone)
        if self.running == (zone, SPOT):
            return True
        if not self.window.up[zone, self.tick]:
            return False
        self.probe_usd += self.probe_ms / _HOUR * float(self.window.spot[zone, self.tick])
        return True

    def terminate(self) -> None:
        if self.acted == "launched":
            raise RuleBroken("terminated after it had launched in the same tick")
        if self.running is not None:
            self.acted = "terminated"
        self.running, self.overhead_ms = None, 0

    def _zone(self, zone: int) -> None:
        if isinstance(zone, bool) or not hasattr(zone, "__index__") or not 0 <= zone < len(self.window.zones):
            raise RuleBroken(f"used the zone {zone!r}; there are {len(self.window.zones)}")


@dataclass(frozen=True, slots=True)
class _Reach:
    """A policy's view of the cloud: the calls it may make, without the window or the bill."""

    try_launch: Callable[[int, str], bool]
    probe: Callable[[int], bool]
    terminate: Callable[[], None]


def play(policy: TickPolicy, task: Task, window: Window, *, probe_ms: int = PROBE_MS) -> Outcome:
    """Run a new policy through the window's first `task.ticks` ticks, until the work is done or time is up.

    Raises PolicyFailed if it raises an error or breaks the protocol, SpecError if the window is shorter than the
    deadline.
    """
    tick_ms = window.tick_ms
    if window.ticks < task.ticks:
        raise refused(window.name, window.ticks, "deadline", f"the window has {window.ticks} of {task.ticks} ticks")
    paces = pace_permille(window)
    cloud = _Cloud(window, task, probe_ms)
    reach = _Reach(cloud.try_launch, cloud.probe, cloud.terminate)
    market = TickMarket(
        zones=window.zones,
        on_demand_usd_per_hour=tuple(window.on_demand.tolist()),
        egress_usd_per_gb=tuple(tuple(row) for row in window.egress.tolist()),
        tick_hours=tick_ms / _HOUR,
        probe_hours=probe_ms / _HOUR,
        speed=tuple(pace / 1000 for pace in paces),
    )
    tick, done_ms, useful_ms, preemptions = 0, 0, 0.0, 0
    spot_usd, on_demand_usd = 0.0, 0.0
    track: list[tuple[int, str] | None] = []
    up, prices = window.up.tolist(), window.spot.T.tolist()
    try:
        policy.start(task.reported(tick_ms), market)
        while tick < task.ticks and done_ms < task.work_ms:
            cloud.tick, cloud.acted = tick, ""
            preempted = cloud.running is not None and cloud.running[1] == SPOT and not up[cloud.running[0]][tick]
            if preempted:
                cloud.running, cloud.overhead_ms = None, 0
                preemptions += 1
            observation = Observation(
                tick=tick,
                elapsed_hours=tick * tick_ms / _HOUR,
                ticks_left=task.ticks - tick,
                done_hours=done_ms / _HOUR,
                running=cloud.running,
                overhead_left_hours=cloud.overhead_ms / _HOUR,
                preempted=preempted,
                spot_usd_per_hour=tuple(prices[tick]),
                checkpoint_zone=cloud.checkpoint,
            )
            policy.step(observation, reach)
            track.append(cloud.running)
            if cloud.running is not None:
                zone, kind = cloud.running
                if kind == SPOT:
                    spot_usd += prices[tick][zone] * tick_ms / _HOUR
                else:
                    on_demand_usd += float(window.on_demand[zone]) * tick_ms / _HOUR
                waited = min(cloud.overhead_ms, tick_ms)
                cloud.overhead_ms -= waited
                progress = min((tick_ms - waited) * paces[zone] // 1000, task.work_ms - done_ms)
                done_ms += progress
                useful_ms += progress * 1000 / paces[zone]
            tick += 1
    except RuleBroken as error:
        raise PolicyFailed(f"{_who(policy)} broke a rule at tick {tick} of {window.name}: it {error}") from error
    except Exception as error:
        message = f"{_who(policy)} failed at tick {tick} of {window.name}: {type(error).__name__}: {error}"
        raise PolicyFailed(message) from error
    billed_ms = sum(place is not None for place in track) * tick_ms
    return Outcome(
        usd=math.fsum((spot_usd, on_demand_usd, cloud.probe_usd, cloud.egress_usd)),
        spot_usd=spot_usd,
        on_demand_usd=on_demand_usd,
        probe_usd=cloud.probe_usd,
        egress_usd=cloud.egress_usd,
        finished=done_ms >= task.work_ms,
        ticks_used=tick,
        useful=useful_ms / billed_ms if billed_ms else 0.0,
        launches=cloud.launches,
        moves=cloud.moves,
        preemptions=preemptions,
        track=tuple(track),
    )


def pace_permille(window: Window) -> list[int]:
    """Milliseconds of work done per second in each zone. Raises SpecError if that rounds to 0."""
    paces = [round(speed * 1000) for speed in window.speed]
    if min(paces) < 1:
        zone = window.zones[paces.index(min(paces))]
        message = f"{zone} has {min(window.speed):g}, but speeds have three decimals"
        raise refused(window.name, 0, "speed", message, "use at least 0.001")
    return paces


def _who(policy: TickPolicy) -> str:
    return str(getattr(policy, "name", type(policy).__name__))
