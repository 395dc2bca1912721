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
class Struck:
    """A job, the run whose machine was struck, and the processes of that machine just before."""

    job: str
    run: Run
    processes: Mapping[int, str]


@pytest.fixture(scope="module")
def struck(tradewind: Tradewind) -> dict[str, Struck]:
    """Five jobs, and an incident each, all at once: they recover side by side. One of them has a standby."""
    hurry = str(tradewind.hurry_file("killed"))
    parents = {"entry": "tiny:main", "steps": STEPS, "args": {"hurry": hurry, "children": True}}
    jobs = {
        "killed": tradewind.submit("killed", train=parents, standby="warm"),
        **{name: tradewind.submit(name) for name in ("noticed", "no-raylet", "no-agent", "no-trainer")},
    }
    until("a standby waits", lambda: _standby(tradewind, jobs["killed"]))
    runs = {name: tradewind.training(job, steps=15) for name, job in jobs.items()}
    victims = {name: Struck(jobs[name], run, tradewind.processes(run)) for name, run in runs.items()}
    os.kill(tradewind.agent(runs["no-agent"]), signal.SIGSTOP)
    tradewind.cloud.preempt(runs["noticed"].instance_id or "", NOTICE_MARKET_S)
    os.kill(named(victims["no-raylet"].processes, "raylet/raylet"), signal.SIGKILL)
    os.kill(named(victims["no-trainer"].processes, "trainers.process.prewarm"), signal.SIGKILL)
    tradewind.cloud.crash(runs["killed"].instance_id or "")
    return victims


def test_a_killed_machine_is_gone_with_every_process_whatever_its_group_or_session(
    tradewind: Tradewind, struck: dict[str, Struck]
) -> None:
    victim = struck["killed"]
    assert sum("sleep 1000" in command for command in victim.processes.values()) == 2
    assert named(victim.processes, "ray::RunActor")
    assert not [command for pid, command in victim.processes.items() if alive(pid)]


def test_a_killed_machine_is_followed_by_the_standby_and_costs_no_checkpoint_that_was_committed(
    tradewind: Tradewind, struck: dict[str, Struck], reference: Reference
) -> None:
    victim = struck["killed"]
    successor = tradewind.training(victim.job, after=victim.run)
    standby = next(move for move in tradewind.migrations(victim.job) if move.reason == "standby")
    assert successor.id == standby.target_run_id, "another machine was started"
    assert successor.offer_id.split("/")[:3] != victim.run.offer_id.split("/")[:3]
    last_words = tradewind.progress(victim.run)
    assert last_words is not None
    assert last_words.manifest_step > 0
    assert last_words.manifest_step <= successor.start_step <= last_words.step + 1

    tradewind.finish(victim.job)
    assert tradewind.losses(victim.job) == reference.losses()
    assert tradewind.weights_hash(victim.job) == reference.weights_hash()
    runs = tradewind.runs(victim.job)
    until("its standbys are gone", lambda: not any(tradewind.processes(run) for run in runs))
    billed = sum(tradewind.cloud.bill_nano_usd(run.instance_id) for run in runs if run.instance_id is not None)
    with tradewind.installation.store.read() as tx:
        assert tx.total_nano_usd(job_id=victim.job) == billed


def _standby(tradewind: Tradewind, job: str) -> Migration | None:
    """The job's standby, once its trainer waits with its libraries loaded."""
    standbys = [move for move in tradewind.migrations(job) if move.reason == "standby"]
    return standbys[-1] if standbys and standbys[-1].step is Step.CHECKPOINT else None


def test_a_preemption_with_notice_repeats_at_most_one_step(
    tradewind: Tradewind, struck: dict[str, Struck], reference: Reference
) -> None:
    victim = struck["noticed"]
    successor = tradewind.training(victim.job, after=victim.run)
    assert (tradewind.installation.run_dir(victim.run.id) / "control" / "notice.json").exists()
    assert successor.start_step >= tradewind.step(victim.run) - 1
    job = tradewind.finish(victim.job)
    assert sum(run.repeated_steps for run in tradewind.runs(job.id)) <= 1
    assert tradewind.losses(victim.job) == reference.losses()
    assert tradewind.weights_hash(job.id) == reference.weights_hash()


def test_an_actor_does_not_outlive_its_raylet_and_could_not_commit_if_it_did(
    tradewind: Tradewind, struck: dict[str, Struck]
) -> None:
    victim = struck["no-raylet"]
    actor = named(victim.processes, "ray::RunActor")
    until("the agent has ended the actor", lambda: not alive(actor))
    reached = tradewind.step(victim.run)
    tradewind.training(victim.job, after=victim.run)
    assert tradewind.step(victim.run) == reached
    assert not tradewind.processes(victim.run)
    with pytest.raises(FencedError):
        require_ownership(tradewind.state / "checkpoints", victim.job, victim.run.generation)
    tradewind.finish(victim.job)


def test_a_trainer_whose_lease_lapses_stops_by_itself_and_is_replaced(
    tradewind: Tradewind, struck: dict[str, Struck]
) -> None:
    victim = struck["no-agent"]
    reported = until(
        "the trainer has fenced itself",
        lambda: (said := tradewind.progress(victim.run)) is not None and said.state == "fenced" and said,
    )
    assert reported.step < STEPS
    tradewind.training(victim.job, after=victim.run)
    assert not [command for pid, command in victim.processes.items() if alive(pid)]
    tradewind.finish(victim.job)
    assert tradewind.runs(victim.job)[0].end == "lost"


def test_a_trainer_that_is_killed_alone_has_failed(tradewind: Tradewind, struck: dict[str, Struck]) -> None:
    victim = struck["no-trainer"]
    tradewind.training(victim.job, after=victim.run)
    failures = tradewind.events(victim.job, "run.failed")
    assert len(failures) == 1, tradewind.story(victim.job)
    assert failures[0] == "attempt 1 of 6 failed: the trainer was killed by signal 9 (out of memory?)"
    assert tradewind.runs(victim.job)[0].end == "failed"
    tradewind.finish(victim.job)


def test_a_zombie_of_a_dead_raylet_commits_nothing_once_another_generation_owns_the_job(
    tradewind: Tradewind, reference: Reference
) -> None:
    zombie = let_one_rise(tradewind, tradewind.submit("haunted"), None)
    assert zombie.end == "fenced"
    assert zombie.steps >= STEPS_AFTER
    assert not zombie.restored
    job = tradewind.finish(zombie.run.job_id)
    assert tradewind.losses(job.id) == reference.losses()
    assert tradewind.weights_hash(job.id) == reference.weights_hash()
