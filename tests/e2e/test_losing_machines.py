"""Machines that are taken, killed, or lose a part of themselves, while real jobs train on them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from orchestrator.model import Migration, Run, Step
from tests.e2e.living import STEPS, Reference, Tradewind, alive, named, until
from tests.e2e.zombies import STEPS_AFTER, let_one_rise
from trainers.checkpoint.store import require_ownership
from trainers.errors import FencedError

pytestmark = pytest.mark.ray

NOTICE_MARKET_S = 120.0  # two seconds at 60 market seconds each


@dataclass(frozen=True)
class Killed:
    """A job with a standby whose machine was killed: the run on that machine, and its processes just before."""

    job: str
    run: Run
    processes: Mapping[int, str]


@pytest.fixture(scope="module")
def killed(tradewind: Tradewind) -> Killed:
    hurry = tradewind.hurry_file("killed")
    parents = {"entry": "tiny:main", "steps": STEPS, "args": {"hurry": str(hurry), "children": True}}
    job = tradewind.submit("killed", train=parents, standby="warm")
    until("a standby waits", lambda: _standby(tradewind, job))
    run = tradewind.training(job, steps=15)
    processes = tradewind.processes(run)
    tradewind.cloud.crash(run.instance_id or "")
    hurry.touch()  # its successor need not wait for a standby of its own
    return Killed(job, run, processes)


@pytest.fixture(scope="module")
def job(tradewind: Tradewind) -> str:
    """One job that goes through everything that follows the killed machine."""
    return tradewind.submit("struck")


def test_a_killed_machine_is_gone_with_every_process_whatever_its_group_or_session(
    tradewind: Tradewind, killed: Killed
) -> None:
    assert sum("sleep 1000" in command for command in killed.processes.values()) == 2
    assert named(killed.processes, "ray::RunActor")
    assert not [command for pid, command in killed.processes.items() if alive(pid)]


def test_a_killed_machine_is_followed_by_the_standby_and_costs_no_checkpoint_that_was_committed(
    tradewind: Tradewind, killed: Killed, reference: Reference
) -> None:
    successor = tradewind.training(killed.job, after=killed.run)
    standby = next(move for move in tradewind.migrations(killed.job) if move.reason == "standby")
    assert successor.id == standby.target_run_id, "another machine was started"
    assert successor.offer_id.split("/")[:3] != killed.run.offer_id.split("/")[:3]
    last_words = tradewind.progress(killed.run)
    assert last_words is not None
    assert last_words.manifest_step > 0
    assert last_words.manifest_step <= successor.start_step <= last_words.step + 1

    tradewind.finish(killed.job)
    assert tradewind.losses(killed.job) == reference.losses()
    assert tradewind.weights_hash(killed.job) == reference.weights_hash()
    runs = tradewind.runs(killed.job)
    until("its standbys are gone", lambda: not any(tradewind.processes(run) for run in runs))
    billed = sum(tradewind.cloud.bill_nano_usd(run.instance_id) for run in runs if run.instance_id is not None)
    with tradewind.installation.store.read() as tx:
        assert tx.total_nano_usd(job_id=killed.job) == billed


def test_a_trainer_that_is_killed_alone_has_failed(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    os.kill(named(tradewind.processes(run), "trainers.process.prewarm"), signal.SIGKILL)
    tradewind.training(job, after=run)
    failures = tradewind.events(job, "run.failed")
    assert len(failures) == 1, tradewind.story(job)
    assert failures[0] == "attempt 1 of 6 failed: the trainer was killed by signal 9 (out of memory?)"
    assert _end(tradewind, run) == "failed"


def test_a_preemption_with_notice_repeats_at_most_one_step(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job, steps=15)
    tradewind.cloud.preempt(run.instance_id or "", NOTICE_MARKET_S)
    successor = tradewind.training(job, after=run)
    assert (tradewind.installation.run_dir(run.id) / "control" / "notice.json").exists()
    assert successor.start_step >= tradewind.step(run) - 1
    assert successor.repeated_steps <= 1


def test_an_actor_does_not_outlive_its_raylet_and_could_not_commit_if_it_did(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    processes = tradewind.processes(run)
    os.kill(named(processes, "raylet/raylet"), signal.SIGKILL)
    actor = named(processes, "ray::RunActor")
    until("the agent has ended the actor", lambda: not alive(actor))
    reached = tradewind.step(run)
    tradewind.training(job, after=run)
    assert tradewind.step(run) == reached
    assert not tradewind.processes(run)
    with pytest.raises(FencedError):
        require_ownership(tradewind.state / "checkpoints", job, run.generation)


def test_a_trainer_whose_lease_lapses_stops_by_itself_and_is_replaced(tradewind: Tradewind, job: str) -> None:
    run = tradewind.training(job)
    processes = tradewind.processes(run)
    os.kill(tradewind.agent(run), signal.SIGSTOP)
    reported = until(
        "the trainer has fenced itself",
        lambda: (said := tradewind.progress(run)) is not None and said.state == "fenced" and said,
    )
    assert reported.step < STEPS
    tradewind.training(job, after=run)
    assert not [command for pid, command in processes.items() if alive(pid)]
    assert _end(tradewind, run) == "lost"


def test_a_zombie_of_a_dead_raylet_commits_nothing_once_another_generation_owns_the_job(
    tradewind: Tradewind, job: str
) -> None:
    zombie = let_one_rise(tradewind, job, None)
    assert zombie.end == "fenced"
    assert zombie.steps >= STEPS_AFTER
    assert not zombie.restored


def test_after_all_that_the_job_ends_as_if_nothing_had_happened(
    tradewind: Tradewind, job: str, reference: Reference
) -> None:
    tradewind.finish(job)
    assert tradewind.losses(job) == reference.losses()
    assert tradewind.weights_hash(job) == reference.weights_hash()


def _standby(tradewind: Tradewind, job: str) -> Migration | None:
    """The job's standby, once its trainer waits with its libraries loaded."""
    standbys = [move for move in tradewind.migrations(job) if move.reason == "standby"]
    return standbys[-1] if standbys and standbys[-1].step is Step.CHECKPOINT else None


def _end(tradewind: Tradewind, run: Run) -> str | None:
    """How a run ended, as far as the control plane knows."""
    return next(each.end for each in tradewind.runs(run.job_id) if each.id == run.id)
