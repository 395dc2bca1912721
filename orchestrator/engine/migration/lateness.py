"""Lateness: reports once when a decision says that a job will miss its deadline, and once when it no longer does.

A job that was reported as late has recovered only if a decision finds an offer that meets its deadline safely, so that
a finish close to the deadline is not reported again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.formats.readable import span
from orchestrator.model import Event, Job, Placement, Plan
from orchestrator.store import Tx

AT_RISK, ON_TIME = "job.at_risk", "job.on_time"
_LATE_S = "late_s"
"""The data that marks an event about a deadline; a job is also at risk if no offer fits it."""


def turned(ctx: Context, plan: Plan) -> Sequence[Placement]:
    """The placements that make a job late, or put it on time again."""
    due = {
        each.job_id: job.deadline_at_ms
        for each in plan.placements
        if (job := ctx.work.jobs.get(each.job_id)) is not None and job.deadline_at_ms is not None
    }
    foretold = [each for each in plan.placements if each.job_id in due and each.finish_at_ms is not None]
    if not foretold:
        return ()
    with ctx.installation.store.read() as tx:
        reported = tx.events_of([each.job_id for each in foretold], (AT_RISK, ON_TIME))
    return [each for each in foretold if _turns(each, due[each.job_id], was_late=_is_late(reported[each.job_id]))]


def report(ctx: Context, tx: Tx, plan: Plan, placement: Placement) -> None:
    """Write the event about one of the placements that `turned` gives, and keep its plan."""
    job = tx.job(placement.job_id)
    if job.deadline_at_ms is None or placement.finish_at_ms is None or job.state not in ("queued", "running"):
        return
    run = snapshot.current_run(tx.runs(job_id=job.id))
    late_s = (placement.finish_at_ms - job.deadline_at_ms) / 1000
    tx.add_plan(plan)
    if late_s > 0:
        said = f"expected to finish {span(late_s)} after its deadline: {placement.reason}"
        ctx.event(tx, AT_RISK, said, job, run=run, plan_id=plan.id, late_s=late_s)
    else:
        said = f"expected to finish before its deadline again: {placement.reason}"
        ctx.event(tx, ON_TIME, said, job, run=run, plan_id=plan.id)


def is_stuck(tx: Tx, job: Job, run_id: str) -> bool:
    """Whether an event already reports that no offer fits the job that trains in this run."""
    events = tx.events_of([job.id], (AT_RISK,))[job.id]
    return any(event.run_id == run_id for event in events if _LATE_S not in event.data)


def _turns(placement: Placement, deadline_at_ms: int | None, *, was_late: bool) -> bool:
    assert placement.finish_at_ms is not None
    assert deadline_at_ms is not None
    if placement.finish_at_ms > deadline_at_ms:
        return not was_late
    return was_late and placement.chance is None


def _is_late(newest_first: Iterable[Event]) -> bool:
    """Whether the job is late, according to the last event about its deadline."""
    for event in newest_first:
        if event.kind == ON_TIME or _LATE_S in event.data:
            return event.kind == AT_RISK
    return False
