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
from orchestrator.perf import Work, program_of
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


def test_the_time_that_a_job_runs_nowhere_counts_from_its_last_training(store: Store, config: Config) -> None:
    hour = 3_600_000
    with store.write() as tx:
        for number in range(1, 5):
            tx.add_job(Job(f"job_{number}", JobSpec("j", TRAIN), "ann", hour, "queued"))
        for number in (2, 3, 4):
            run_id = f"run_{number}"
            tx.add_run(Run(run_id, f"job_{number}", 1, OFFER.id, "i", "training" if number == 4 else "ended", hour))
            tx.update_run(run_id, training_from_ms=2 * hour)
            if number != 4:
                tx.update_run(run_id, training_to_ms=5 * hour, end="lost")
        tx.add_run(Run("run_wasted", "job_2", 2, OFFER.id, "i", "ended", 6 * hour))  # it never trained there
        tx.update_run("run_wasted", training_to_ms=7 * hour, end="aborted")
        tx.add_event(Event("evt_1", 8 * hour, "job.resumed", "resumed", "user:ann", "job_3"))
    with store.read() as tx:
        found = snapshot.inputs(tx, 10 * hour, config).demands
    assert [each.idle_s / 3600 for each in found] == [9.0, 5.0, 2.0, 0.0]


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
    assert found[other].checkpoint_s < 1.0
    assert found[slow].handover_s == pytest.approx(200.0, rel=0.25)
    assert (found[other].handover_s or 0) < 100.0


def save_s(store: Store, config: Config, job_id: str) -> float:
    with store.read() as tx:
        return {each.job.id: each for each in snapshot.inputs(tx, store._clock.now_ms(), config).demands}[
            job_id
        ].checkpoint_s


def test_a_save_that_was_never_measured_takes_as_long_as_its_bytes_do_in_other_jobs(
    store: Store, config: Config
) -> None:
    trained(store, range(1, 5), state="queued")
    small, large = "job_0001", "job_0002"
    with store.write() as tx:
        tx.set_job_facts(small, checkpoint_bytes=10**6)
        tx.set_job_facts(large, checkpoint_bytes=100 * 10**9)
    assert save_s(store, config, small) < 1.0
    assert save_s(store, config, large) == pytest.approx(200, rel=0.1)  # assumed: 2 s per GB
    with store.write() as tx:  # ten times as fast; and a tiny checkpoint, which says nothing about bytes
        tx.set_job_facts("job_0003", checkpoint_bytes=400 * 10**9)
        tx.update_run("run_0003_2", save_wall_s=80.0)
        tx.set_job_facts("job_0004", checkpoint_bytes=1000)
        tx.update_run("run_0004_2", save_wall_s=2.0)
    assert save_s(store, config, large) == pytest.approx(20, rel=0.1)
    assert save_s(store, config, small) < 1.0
    with store.write() as tx:
        tx.update_run("run_0002_1", save_wall_s=7.0)
    assert save_s(store, config, large) == 7.0  # its own


def test_the_handover_of_a_large_checkpoint_takes_at_least_a_save_and_a_restore(store: Store, config: Config) -> None:
    trained(store, range(1, 3), state="queued")
    with store.write() as tx:
        tx.set_job_facts("job_0002", checkpoint_bytes=100 * 10**9)
    with store.read() as tx:
        small, large = snapshot.inputs(tx, store._clock.now_ms(), config).demands
    assert (small.handover_s or 0) < 5
    assert large.handover_s == 2 * large.checkpoint_s


def test_the_checkpoint_of_a_job_that_was_only_profiled_is_its_weights_and_optimizer_state(
    store: Store, config: Config
) -> None:
    trained(store, range(1, 2), state="queued")
    work = Work(1e12, 0.0, 1e9, 100, 10**9, 16 * 10**9, 10**9, 1.0, weight_bytes=4 * 10**9, gradient_bytes=4 * 10**9)
    with store.write() as tx:
        tx.put_work(program_of(TRAIN), work, 0)
    assert save_s(store, config, "job_0001") == pytest.approx(24, rel=0.05)  # 12 GB
    with store.read() as tx:
        (demand,) = snapshot.inputs(tx, store._clock.now_ms(), config).demands
    assert demand.checkpoint_bytes == 12 * 10**9, "what is known of it is priced before it is saved"
    assert demand.store_root == str(config.store_root)


def test_a_start_on_this_machine_takes_minutes_of_its_market_as_on_a_cloud() -> None:
    local = load_config({"state_dir": "/nowhere"}, environ={}, cwd=Path("/"))
    assert 120 <= latencies.start_prior("local", local).seconds <= 600


def test_a_demand_is_called_by_its_id_where_another_job_has_its_name(store: Store, config: Config) -> None:
    """A decision may name a command that gives a job with a budget more."""

    def names() -> list[str]:
        with store.read() as tx:
            return [each.typed_name for each in snapshot.inputs(tx, 10**6, config).demands]

    with store.write() as tx:
        tx.add_job(Job("job_1", JobSpec("j", TRAIN, budget_nano_usd=10**9), "ann", 1, "queued"))
    assert names() == [""], "it has not started, so no command is named"
    with store.write() as tx:
        tx.add_run(Run("run_1", "job_1", 1, OFFER.id, "i", "ended", 1))
        tx.update_run(
            "run_1", billed_from_ms=1, billed_to_ms=2, training_from_ms=2, end="lost", saved_step=5, last_step=5
        )
    assert names() == ["j"]
    trained(store, range(1))
    assert names() == ["job_1"]
