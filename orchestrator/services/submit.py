"""Submit: a job becomes a row, its event and its plan, in one transaction. Must not know: how it is placed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.engine.world import World
from orchestrator.model import Event, Job, Plan, new_id
from orchestrator.services.actor import actor
from orchestrator.services.jobs import job_view
from orchestrator.services.plan import require_startable
from orchestrator.services.views import JobView, PlanView
from orchestrator.store import Tx


def submit(world: World, plan: PlanView) -> tuple[JobView, ...]:
    """Submit a plan's new jobs; the control plane places each by the market of its own moment.

    Deadlines count from now. Raises InfeasibleError when no offer could take one of them.
    """
    require_startable(plan)
    for job in plan.new_jobs:
        make_checkpoint_folder(job)
    with world.store.write() as tx:
        jobs = add_jobs(world, tx, plan.new_jobs, plan.plan)
        return tuple(job_view(world, tx, job) for job in jobs)


def make_checkpoint_folder(job: Job) -> None:
    """The folder that the job file names, with the permissions that its owner's umask gives; those of checkpoints
    follow from them."""
    if job.spec.checkpoint.to is not None:
        with suppress(OSError):  # the job's machine may reach what this one does not; it says what it cannot write
            Path(job.spec.checkpoint.to).mkdir(parents=True, exist_ok=True)


def add_jobs(world: World, tx: Tx, jobs: Sequence[Job], plan: Plan) -> list[Job]:
    """Write new jobs and what was planned for them, in the caller's transaction."""
    now = world.clock.now_ms()
    added = [dataclasses.replace(job, submitted_at_ms=now, state="queued") for job in jobs]
    for job in added:
        tx.add_job(job)
    tx.add_plan(plan)
    for job in added:
        tx.add_event(
            Event(
                id=new_id("ev", now, random.SystemRandom()),
                at_ms=now,
                kind="job.submitted",
                message=f"submitted, objective {job.spec.objective.name}",
                actor=actor(),
                job_id=job.id,
                plan_id=plan.id,
                project=job.project,
                owner=job.owner,
                labels=job.spec.labels,
            )
        )
    return added
