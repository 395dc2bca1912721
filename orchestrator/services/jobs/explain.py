"""Explains the current state of jobs, plans, migrations and runs from recorded decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Event, Job, Migration, Plan, Run
from orchestrator.services.jobs.current import job_view
from orchestrator.services.jobs.forecasts import forecasts
from orchestrator.services.jobs.plan import decisions_of, not_rentable
from orchestrator.services.views import Decision, Explanation, JobView, StepTime
from orchestrator.store import Tx
from providers.money import format_usd

HISTORY = 40
DECISIONS = (
    "job.",
    "command.",
    "plan.",
    "migration.cutover",
    "migration.done",
    "migration.aborted",
    "migration.asked",
    "instance.",
)


def explain(installation: Installation, ref: str) -> Explanation:
    """Why a job is where it is, what a plan decided, or why a migration or run was started. Raises NotFoundError."""
    with installation.store.read() as tx:
        if ref.startswith("plan_"):
            explanation = _plan(tx, tx.plan(ref))
        elif ref.startswith("mig_"):
            explanation = _migration(installation, tx, tx.migration(ref))
        elif ref.startswith("run_"):
            explanation = _run(installation, tx, tx.run(ref))
        else:
            explanation = _job(installation, tx, tx.find_job(ref))
        return replace(explanation, not_rentable=not_rentable(tx, installation.providers))


def why_paused(job: JobView) -> str:
    """A sentence about a paused job: `conv is paused at its last checkpoint`, with its warnings, if any, before it."""
    return f"{job.name}: {job.note}" if job.warnings else f"{job.name} is {job.note}"


def _job(installation: Installation, tx: Tx, job: Job) -> Explanation:
    view = job_view(installation, tx, job, forecasts(installation, tx, [job])[job.id])
    plan = tx.latest_plan(job.id) if job.state != "paused" else None  # it waits for the user, not for an offer
    decisions = tuple(_as_known_now(view, each) for each in _decisions(tx, plan, [job]))
    if view.offer_id is not None:
        headline = f"{job.name} is {job.state} on {view.offer_id}"
    else:
        headline = f"{job.name} is {job.state}"
    if job.state == "failed":
        headline += f": {(tx.job_facts(job.id).error or 'its code raised').strip().splitlines()[-1]}"
    elif job.state == "paused":
        headline = why_paused(view) + (f"; {view.lateness}" if view.lateness else "")
    elif job.state == "finished" and view.warnings:
        headline += f"; {'; '.join(view.warnings)}"
    elif (waits := _waits(tx, job, plan)) is not None:
        headline += f": {waits}" + (f"; {view.lateness}" if view.lateness else "")
    elif decisions and job.state not in TERMINAL:
        headline += f": {decisions[0].reason}"
    return _explanation(
        f"job {job.id}",
        headline,
        plan=plan,
        decisions=decisions,
        view=view,
        simulated=view.simulated,
        history=_history(tx, job.id),
    )


def _waits(tx: Tx, job: Job, plan: Plan | None) -> str | None:
    """What a queued job waits for, if this is newer than its plan and differs from it."""
    newest = tx.events(job_id=job.id, limit=1, newest_first=True) if job.state == "queued" else ()
    if not newest or newest[0].kind != "job.waits":
        return None
    said = "" if plan is None else next((each.reason for each in plan.placements if each.job_id == job.id), "")
    begins = newest[0].message.partition(";")[0]
    return None if said.partition(";")[0] == begins else newest[0].message


def _as_known_now(view: JobView, decided: Decision) -> Decision:
    """The decision; if the forecast for the deadline has changed since then, with the current forecast as the
    reason."""
    if view.deadline_at_ms is None or decided.finish_at_ms is None:
        return decided
    was_late = decided.finish_at_ms > view.deadline_at_ms
    if view.late_s is not None:
        so_far = f"; as of the decision: {decided.reason}" if was_late else ""
        return replace(decided, reason=view.lateness + so_far)
    if was_late and view.forecast is not None:
        return replace(decided, reason="expected to finish before its deadline again")
    return decided


def _plan(tx: Tx, plan: Plan) -> Explanation:
    wanted = {placement.job_id for placement in plan.placements}
    jobs = tx.outlines_of(wanted)
    looked_at, acting = tx.plan_tally(plan.id)
    headline = f"plan {plan.id} covers {looked_at} job{'' if looked_at == 1 else 's'} and starts or moves {acting}"
    if len(wanted) < looked_at:
        headline += f"; newer plans have replaced its decisions about {looked_at - len(wanted)} of them"
    return _explanation(
        f"plan {plan.id}",
        headline,
        plan=plan,
        decisions=_decisions(tx, plan, jobs),
        simulated=plan.simulated,
        history=(),
    )


def _migration(installation: Installation, tx: Tx, migration: Migration) -> Explanation:
    job = tx.outline(migration.job_id)
    source = tx.run(migration.source_run_id) if migration.source_run_id is not None else None
    events = tx.events_of_migration(job.id, migration.id)
    origin = f" from {source.offer_id}" if source is not None else ""
    headline = f"{job.name} {_verb(migration)}{origin} to {migration.offer_id}: {migration.reason}"
    if migration.expected_saving_nano_usd:
        headline += f", {format_usd(migration.expected_saving_nano_usd)} saving expected"
    if migration.error:
        headline += f" ({migration.error.strip().splitlines()[-1]})"
    plan = _plan_of(tx, migration)
    view = job_view(installation, tx, job)
    return _explanation(
        f"migration {migration.id}",
        headline,
        plan=plan,
        decisions=_decisions(tx, plan, [job]),
        view=view,
        simulated=view.simulated,
        migration=migration,
        steps=_steps(migration, events),
        history=tuple(events),
    )


def _run(installation: Installation, tx: Tx, run: Run) -> Explanation:
    moves = tx.migrations(job_id=run.job_id, unreadable=left_out)
    for migration in reversed(moves):  # for a standby, the migration that used it
        if migration.target_run_id == run.id:
            return _migration(installation, tx, migration)
    return _job(installation, tx, tx.outline(run.job_id))


def _explanation(
    subject: str,
    headline: str,
    *,
    plan: Plan | None,
    decisions: tuple[Decision, ...],
    simulated: bool,
    history: tuple[Event, ...],
    view: JobView | None = None,
    migration: Migration | None = None,
    steps: tuple[StepTime, ...] = (),
) -> Explanation:
    return Explanation(
        subject=subject,
        headline=headline,
        simulated=simulated,
        job=view,
        plan_id=plan.id if plan is not None else None,
        planned_at_ms=plan.at_ms if plan is not None else None,
        decisions=decisions,
        migration=migration,
        steps=steps,
        history=history,
    )


def _decisions(tx: Tx, plan: Plan | None, jobs: Sequence[Job]) -> tuple[Decision, ...]:
    if plan is None:
        return ()
    by_id = {job.id: job for job in jobs}
    placements = [placement for placement in plan.placements if placement.job_id in by_id]
    return tuple(decisions_of(tx, placements, by_id))


def _history(tx: Tx, job_id: str) -> tuple[Event, ...]:
    return tuple(reversed(tx.newest_of_kinds(job_id, DECISIONS, HISTORY)))


def _plan_of(tx: Tx, migration: Migration) -> Plan | None:
    return tx.plan(migration.plan_id) if migration.plan_id is not None else None


def _verb(migration: Migration) -> str:
    if migration.step.value == "done":
        return "moved" if migration.source_run_id is not None else "was placed"
    if migration.step.value == "aborted":
        return "did not move"
    return f"is moving (step {migration.step.value})"


def _steps(migration: Migration, events: Sequence[Event]) -> tuple[StepTime, ...]:
    """The time of each step. A step's duration is the time until the next recorded step."""
    instants = [("begun", migration.created_at_ms)]
    instants += [(event.kind.partition(".")[2], event.at_ms) for event in events if "migration." in event.kind]
    ends = [at for _, at in instants[1:]]
    return tuple(
        StepTime(name, at, (ends[i] - at) / 1000 if i < len(ends) else None) for i, (name, at) in enumerate(instants)
    )
