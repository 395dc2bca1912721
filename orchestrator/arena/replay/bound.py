"""Bound: the cost of a job that always runs where a step is cheapest, among all offers with capacity, and moves without
time or cost. No policy reaches it; it ignores deadlines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from orchestrator.arena.replay.capacity import Capacity
from orchestrator.arena.replay.jobs import ReplayJob
from orchestrator.arena.replay.record import Record

_HOUR_MS = 3_600_000
_CHUNK_MS = 24 * _HOUR_MS


def instant_cheapest(record: Record, capacity: Capacity, job: ReplayJob) -> tuple[int, int]:
    """(nano-USD, ms of market time until the job is done)."""
    listing = record.listing
    rows = []
    for row in range(len(listing)):
        kind = listing.kinds[int(listing.kind[row])]
        if (rate := job.rates.get((kind.gpu, kind.gpu_count))) is not None:
            rows.append((row, rate))
    left, at_ms, cost = float(job.steps), job.start_ms, 0.0
    while left > 0:
        until_ms = at_ms + _CHUNK_MS
        changes = {at_ms, until_ms}
        for row, _ in rows:
            pool = capacity[row]
            changes.update(each for each, _ in record.between(row, at_ms, until_ms))
            changes.update(pool.begins[slice(*np.searchsorted(pool.begins, (at_ms, until_ms)))])
            changes.update(pool.ends[slice(*np.searchsorted(pool.ends, (at_ms, until_ms)))])
        instants = sorted(each for each in changes if at_ms <= each <= until_ms)
        for begin_ms, end_ms in pairwise(instants):
            per_step, rate = min(
                (price / rate, rate)
                for row, rate in rows
                if capacity[row].up(begin_ms) and (price := record.price(row, begin_ms)) is not None
            )
            steps = min(rate * (end_ms - begin_ms) / 1000, left)
            cost += per_step * steps / 3600
            left -= steps
            if left <= 0:
                return round(cost), begin_ms + round(steps / rate * 1000) - job.start_ms
        at_ms = until_ms
    return round(cost), at_ms - job.start_ms
