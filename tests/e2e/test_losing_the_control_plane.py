"""kill -9 of the control plane, at rest and in the middle of moves; a second one on the store."""

from __future__ import annotations

import random
import signal

import pytest

from orchestrator.model import STEP_ORDER, Step
from tests.e2e.living import PATIENCE_S, PROGRAMS, Reference, Tradewind, until

pytestmark = pytest.mark.ray

POINTS = (*[(step.value,) for step in STEP_ORDER if step not in (Step.PROVISION, Step.DONE)], ("cutover", "fence"))


@pytest.fixture(scope="module")
def job(tradewind: Tradewind) -> str:
    """One job that goes through everything in this module."""
    return tradewind.submit("survivor")


def test_runs_go_on_without_a_control_plane_and_the_next_one_picks_them_up(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    tradewind.kill_control_plane()
    assert not tradewind.client.control_plane.status().running
    reached = tradewind.step(run)
    until("the run has trained on alone", lambda: tradewind.step(run) > reached + 5)

    tradewind.command("up")
    seen = tradewind.runs(job)[-1].last_step
    until("the new control plane hears of it", lambda: tradewind.runs(job)[-1].last_step > seen)
    assert [run.id for run in tradewind.runs(job)] == [run.id]


def test_a_second_control_plane_stands_by_and_takes_over_after_kill_9(tradewind: Tradewind, job: str) -> None:
    log = tradewind.state / "control-plane.log"
    written = len(log.read_text())
    first = tradewind.leader_pid
    second = tradewind.start_control_plane()
    until("the second one says that it stands by", lambda: "standing by: " in log.read_text()[written:])
    assert f"/{first} is active" in log.read_text()[written:]
    tradewind.kill_control_plane()
    until("the second one leads", lambda: tradewind.led_by(second.pid))
    run = tradewind.training(job)
    seen = tradewind.runs(job)[-1].last_step
    until("it hears of the run", lambda: tradewind.runs(job)[-1].last_step > seen)
    assert [run.id for run in tradewind.runs(job)] == [run.id]


def test_a_store_that_is_gone_is_named_and_put_back(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    leader = tradewind.leader_pid
    log = tradewind.state / "control-plane.log"
    written = len(log.read_text())
    files = [tradewind.state / f"tradewind.db{ending}" for ending in ("", "-wal", "-shm")]
    away = {file: file.with_suffix(f"{file.suffix}.away") for file in files if file.exists()}
    for file, place in away.items():
        file.rename(place)
    until("the control plane says what is missing", lambda: "tradewind.db" in log.read_text()[written:])
    reached = tradewind.step(run)
    for file, place in away.items():
        place.rename(file)
    until("it has caught up", lambda: tradewind.runs(job)[-1].last_step > reached)
    assert tradewind.leader_pid == leader
    assert [each.id for each in tradewind.runs(job)] == [run.id]


@pytest.mark.parametrize("doom", [random.choice(POINTS)], ids="-".join)  # tests/crash goes through all of them
def test_a_planned_move_survives_kill_9_of_the_control_plane_at_a_random_point(
    tradewind: Tradewind, job: str, doom: tuple[str, ...]
) -> None:
    source = tradewind.training(job)
    tradewind.end_control_plane()
    killed = tradewind.start_control_plane(str(PROGRAMS / "killed_control_plane.py"), *doom)
    tradewind.client.jobs.migrate(job, tradewind.other_offer(source))
    assert killed.wait(timeout=PATIENCE_S) == -signal.SIGKILL, f"it was not killed at {doom}"

    tradewind.command("up")
    target = tradewind.training(job, after=source)
    move = tradewind.migrations(job)[-1]
    assert (move.source_run_id, move.target_run_id) == (source.id, target.id), tradewind.story(job)
    until("the source's machine is gone", lambda: not tradewind.processes(source))
    assert target.repeated_steps == 0


def test_after_all_that_every_loss_is_that_of_an_uninterrupted_run_and_every_machine_is_booked_once(
    tradewind: Tradewind, job: str, reference: Reference
) -> None:
    tradewind.finish(job)
    assert tradewind.losses(job) == reference.losses()
    assert tradewind.weights_hash(job) == reference.weights_hash()
    instances = [run.instance_id for run in tradewind.runs(job) if run.instance_id is not None]
    assert len(set(instances)) == len(instances)
    assert tradewind.rented(job) == set(instances), "a machine was doubled or leaked"
    with tradewind.installation.store.read() as tx:
        total = tx.total_nano_usd(job_id=job)
        assert sum(entry.amount_nano_usd for entry in tx.entries(job_id=job)) == total
    assert total == sum(tradewind.cloud.bill_nano_usd(instance_id) for instance_id in instances)
