"""Small markets for tests of the arena."""

from __future__ import annotations

import numpy as np

from orchestrator.arena.ticks import Task
from orchestrator.arena.traces import Trace

ZONES = ("us-east-1a", "us-east-1b", "us-west-2a", "europe-west1-c")
HOUR = 3_600_000


def trace(capacity, spot=1.0, on_demand=3.0, tick_ms=600_000, known=None, speed=()) -> Trace:
    """A trace from rows of capacity, one a zone."""
    rows = np.array(capacity, np.int64)
    return Trace(
        name="small",
        zones=ZONES[: len(rows)],
        capacity=rows,
        spot=np.broadcast_to(np.asarray(spot, np.float64), rows.shape).copy(),
        on_demand=np.broadcast_to(np.asarray(on_demand, np.float64), rows.shape[:1]).copy(),
        tick_ms=tick_ms,
        known=np.ones(rows.shape, np.bool_) if known is None else np.array(known, np.bool_),
        filled=np.zeros(rows.shape, np.bool_),
        start_ms=0,
        speed=tuple(speed),
    )


def task(work_ticks: float, ticks: int, overhead_ticks: float = 0.5, gb: float = 0.0, tick_ms: int = 600_000) -> Task:
    """A job in units of the tick."""
    return Task.of(work_ticks * tick_ms / HOUR, ticks * tick_ms / HOUR, overhead_ticks * tick_ms / HOUR, gb, tick_ms)
