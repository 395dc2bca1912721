"""Checkpoints kept: what is known of a job's checkpoints, for plan and bill: their size, where they were brought from,
and how much room they take.

The room is that for as many checkpoints of that size as the job keeps, as long as the machine is billed: so the plan
counts it, and so it is booked.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.inputs.snapshot import checkpoint_at
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable, ManifestInfo
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job, Run

WEIGH_EVERY_S = 10.0  # wall, until its size is found out


def weigh(ctx: Context, job: Job, run: Run, report: RunReport) -> None:
    """Find out how large the checkpoints of a run are that began from scratch, once it has one."""
    if run.kept_bytes is not None or report.manifest is None or not ctx.due(f"weighed/{run.id}", WEIGH_EVERY_S):
        return
    try:
        found = ctx.checkpoints.find(ctx.checkpoint_root(job), job.id, report.manifest)
    except CheckpointUnusable:
        return  # asked again
    if found is not None:
        with ctx.write() as tx:
            tx.set_job_facts(job.id, checkpoint_bytes=found.size_bytes)
            tx.update_run(run.id, kept_bytes=room_bytes(job, found))


def bring(ctx: Context, job: Job, target: Run, found: ManifestInfo) -> None:
    """Write down that this checkpoint is brought to the machine of `target`: once, however often the step is repeated,
    and however many runs have the machine one after the other."""
    with ctx.write() as tx:
        place = checkpoint_at([run for run in tx.runs(job_id=job.id) if run.id != target.id])
        tx.set_job_facts(job.id, checkpoint_bytes=found.size_bytes)
        tx.update_run(target.id, kept_bytes=room_bytes(job, found))
        if place is not None and target.moved_bytes is None:
            tx.update_run(target.id, moved_from="/".join(place), moved_bytes=found.size_bytes)


def room_bytes(job: Job, found: ManifestInfo) -> int:
    """For the checkpoints that the job keeps."""
    return found.size_bytes * job.spec.checkpoint.keep
