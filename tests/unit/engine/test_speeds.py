"""Measured speeds are read again only of jobs that were measured since, and never from the future."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.model import Job, JobSpec
from orchestrator.store import Store
from orchestrator.store.queries.plans import MAX_PERF_POINTS
from providers.clock import VirtualClock
from tests.unit.engine.test_snapshot import TRAIN

LATER = 10**12


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/tradewind.db", VirtualClock())
    with opened.write() as tx:
        for name in ("job_a", "job_b"):
            tx.add_job(Job(name, JobSpec("j", TRAIN), "ann", 1, "running"))
    yield opened
    opened.close()


def measure(store: Store, job_id: str, rate: float, at_ms: int) -> None:
    with store.write() as tx:
        tx.add_perf(job_id, "V100", 1, rate, 10, at_ms)


def rates(reader: SpeedReader, store: Store, now_ms: int = LATER) -> dict[str, list[float]]:
    with store.read() as tx:
        found = reader.read(tx, ("job_a", "job_b", "job_missing"), now_ms)
    return {job_id: sorted(series.rates.tolist()) for job_id, kinds in found.items() for series in kinds.values()}


def test_a_new_measurement_is_read_and_the_others_are_kept(store: Store) -> None:
    reader = SpeedReader()
    measure(store, "job_a", 1.0, 1)
    assert rates(reader, store) == {"job_a": [1.0]}
    measure(store, "job_b", 2.0, 2)
    assert rates(reader, store) == {"job_a": [1.0], "job_b": [2.0]}
    measure(store, "job_a", 3.0, 3)
    assert rates(reader, store) == rates(SpeedReader(), store) == {"job_a": [1.0, 3.0], "job_b": [2.0]}


def test_measurements_that_are_merged_are_read_again(store: Store) -> None:
    reader = SpeedReader()
    for number in range(2 * MAX_PERF_POINTS):
        measure(store, "job_a", 1.0 + number, number)
        assert rates(reader, store) == rates(SpeedReader(), store)


def test_what_was_measured_later_does_not_count_yet(store: Store) -> None:
    reader = SpeedReader()
    measure(store, "job_a", 1.0, 5)
    measure(store, "job_a", 2.0, 10)
    assert rates(reader, store, now_ms=4) == {}
    assert rates(reader, store, now_ms=7) == {"job_a": [1.0]}
    assert rates(reader, store, now_ms=20) == {"job_a": [1.0, 2.0]}
    assert rates(reader, store, now_ms=7) == {"job_a": [1.0]}
