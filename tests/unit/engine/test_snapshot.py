"""The inputs of a decision cost the same after a year of jobs as on the first day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from orchestrator.config import Config, load_config
from orchestrator.engine.inputs import latencies, snapshot
from orchestrator.model import Event, Job, JobSpec, Run, TrainSpec
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.offer import CapacityType, Offer

OFFER = Offer("fake", "r", "z", "t", "V100", 1, 8, 64, CapacityType.SPOT)
TRAIN = TrainSpec(entry="m:f", script=None, args={}, workdir="/", env={}, secrets=(), steps=9, epochs=None)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    given = {"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}
    return load_config(given, cwd=tmp_path, environ={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/tradewind.db", VirtualClock())
    with opened.write() as tx:
        tx.put_offers("fake", [OFFER])
    yield opened
    opened.close()


def trained(store: Store, numbers: range, *, state: Any = "finished", start_s: int = 60) -> None:
    """Jobs that ran twice and were measured."""
    with store.write() as tx:
        for number in numbers:
            job_id = f"job_{number:04}"
            tx.add_job(Job(job_id, JobSpec("j", TRAIN), "ann", number, state))
            for generation in (1, 2):
                run_id = f"run_{number:04}_{generation}"
                tx.add_run(Run(run_id, job_id, generation, OFFER.id, "i", "ended", number))
                trains_ms = number + start_s * 1000
                tx.update_run(
                    run_id, billed_from_ms=number, billed_to_ms=trains_ms, training_from_ms=trains_ms, end="finished"
                )
                tx.add_perf(job_id, "V100", 1, 1.0, 10, number)


def rows_read(store: Store, config: Config) -> int:
    """How many rows the store hands out for one decision."""
    asked: list[tuple[str, Any]] = []

    def listen(_connection: Any, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        asked.append((statement, values))

    event.listen(store._backend.reading, "before_cursor_execute", listen)
    with store.read() as tx:
        snapshot.inputs(tx, store._clock.now_ms(), config)
        event.remove(store._backend.reading, "before_cursor_execute", listen)
        return sum(len(tx._connection.exec_driver_sql(*each).all()) for each in asked)


def test_jobs_that_have_ended_make_no_decision_slower(store: Store, config: Config) -> None:
    trained(store, range(1000, 1002), state="queued")
    trained(store, range(snapshot.LIKE_JOBS + 10))
    first = rows_read(store, config)
    trained(store, range(2000, 2150))
    assert rows_read(store, config) == first


def test_saves_and_handovers_are_learned_for_each_job_by_itself(store: Store, config: Config) -> None:
    trained(store, range(1, 3), state="queued")
    slow, other = "job_0001", "job_0002"
    with store.write() as tx:
        tx.update_run("run_0001_1", save_wall_s=40.0)
        for number in range(3):
            reported = {latencies.HANDOVER: 200.0}
            tx.add_event(Event(f"evt_{number}", number, "migration.cutover", "", "control-plane", slow, data=reported))
    with store.read() as tx:
        found = {each.job.id: each for each in snapshot.inputs(tx, store._clock.now_ms(), config).demands}
    assert found[slow].checkpoint_s == 40.0
    assert found[other].checkpoint_s == latencies.save_s(config, ())
    assert found[slow].handover_s == pytest.approx(200.0, rel=0.25)
    assert (found[other].handover_s or 0) < 100.0


def test_a_start_on_this_machine_takes_minutes_of_its_market_as_on_a_cloud() -> None:
    local = load_config({"state_dir": "/nowhere"}, environ={}, cwd=Path("/"))
    assert 120 <= latencies.start_prior("local", local).seconds <= 600
