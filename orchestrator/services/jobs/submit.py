"""Submits jobs: stores a job, its event and its plan in one transaction."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import TokenConflictError, UsageError, echoed
from orchestrator.formats.codec import encode
from orchestrator.installation import Installation
from orchestrator.jobfile.checks import scheme
from orchestrator.model import Event, Job, JobSpec, Plan, new_id
from orchestrator.services.caller import Caller
from orchestrator.services.jobs.code import uploaded
from orchestrator.services.jobs.current import job_view
from orchestrator.services.jobs.feasible import require_startable
from orchestrator.services.jobs.objective import objectives
from orchestrator.services.views import JobView, PlanView
from orchestrator.store import Tx

TOKEN = re.compile(r"[!-~]{1,200}")
"""A valid submission token: printable ASCII without spaces."""


def submit(
    installation: Installation, plan: PlanView, *, caller: Caller, token: str | None = None, accept_code: bool = False
) -> JobView:
    """Submit a plan's new job as `caller`. The control plane places it by the market at the time of placement.

    `accept_code`: upload its code even if that is large or may contain secrets (services.jobs.code).

    Deadlines count from now. With a `token` chosen by the submitter, repeating the same submission returns the first
    job. Raises InfeasibleError if no offer fits, TokenConflictError, UsageError, StoreError.
    """
    require_startable(plan)
    (new,) = plan.new_jobs
    if token is not None and (before := submitted_before(installation, new.spec, token)) is not None:
        return before
    make_checkpoint_folder(new)
    with uploaded(installation, [new], accepted=accept_code) as (packed,), installation.store.write() as tx:
        job = None if token is None else _with_token(tx, new.spec, token)
        if job is None:
            (job,) = add_jobs(installation, tx, [packed], plan.plan, caller=caller, token=token)
        return job_view(installation, tx, job)


def submitted_before(installation: Installation, spec: JobSpec, token: str) -> JobView | None:
    """The job that the same submission created earlier, else None. Raises TokenConflictError, UsageError."""
    with installation.store.read() as tx:
        job = _with_token(tx, spec, token)
        return None if job is None else job_view(installation, tx, job)


def _with_token(tx: Tx, spec: JobSpec, token: str) -> Job | None:
    if not TOKEN.fullmatch(token):
        raise UsageError(
            f"{echoed(token)} is not a valid token", hint="use 1 to 200 printable ASCII characters, no spaces"
        )
    if (group := tx.group_with_token(spec.project, token)) is not None:
        raise TokenConflictError(
            f"the token {token} was used for the group {group[0].name} of project {spec.project}",
            hint="use another token",
        )
    job = tx.job_with_token(spec.project, token)
    if job is not None and encode(_as_submitted(tx, job)) != encode(spec):
        raise TokenConflictError(
            f"the token {token} was used for another submission to project {spec.project}: {job.name} ({job.id})",
            hint=f"see it: tradewind status {job.id}; use another token for a different job",
        )
    return job


def _as_submitted(tx: Tx, job: Job) -> JobSpec:
    """The job file as it was before its code was uploaded and its budget changed."""
    changed = tx.events(job_id=job.id, kinds=("job.budget",), limit=1)
    before = changed[0].data["before_nano_usd"] if changed else job.spec.budget_nano_usd
    train = dataclasses.replace(job.spec.train, code=None)
    return dataclasses.replace(job.spec, train=train, budget_nano_usd=None if before is None else int(before))


def make_checkpoint_folder(job: Job) -> None:
    """Create the folder that the job file names, with its owner's umask. Checkpoints take their permissions from it."""
    if job.spec.checkpoint.to is not None and scheme(job.spec.checkpoint.to) is None:
        with suppress(
            OSError
        ):  # the job's machine may have access even if this one has not; otherwise it reports the error
            Path(job.spec.checkpoint.to).mkdir(parents=True, exist_ok=True)


def add_jobs(
    installation: Installation,
    tx: Tx,
    jobs: Sequence[Job],
    plan: Plan,
    *,
    caller: Caller,
    token: str | None = None,
) -> list[Job]:
    """Write new jobs of `caller` and their plan in the current transaction. A `token` is allowed for a single job."""
    now = installation.clock.now_ms()
    added = [dataclasses.replace(job, owner=caller.owner, submitted_at_ms=now, state="queued") for job in jobs]
    for job in added:
        tx.add_job(job, token)
    tx.add_plan(plan, acted_on=[each.job_id for each in plan.placements])  # it was reviewed and may be applied
    decided_by = objectives(tx, added)
    for job in added:
        tx.add_event(
            Event(
                id=new_id("ev", now, random.SystemRandom()),
                at_ms=now,
                kind="job.submitted",
                message=f"submitted, objective {decided_by[job.id]}",
                actor=caller.actor,
                job_id=job.id,
                plan_id=plan.id,
                project=job.project,
                owner=job.owner,
                labels=job.spec.labels,
            )
        )
    return added
