"""Checkpoints kept: records a job's checkpoint size, origin and storage, for plans and bills.

Storage is billed for as many checkpoints of that size as the job keeps, as long as the machine is billed.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.inputs.snapshot import checkpoint_at
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable, ManifestInfo
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job, Run

MEASURE_EVERY_S = 10.0  # wall, until the size is known


def measure(ctx: Context, job: Job, run: Run, report: RunReport) -> None:
    """Record the checkpoint size of a run that started from scratch, once it has a checkpoint."""
    if run.kept_bytes is not None or report.manifest is None or not ctx.due(f"weighed/{run.id}", MEASURE_EVERY_S):
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
    """Record that this checkpoint is copied to the machine of `target`: once, even if the step is repeated or several
    runs use the machine one after the other."""
    with ctx.write() as tx:
        place = checkpoint_at([run for run in tx.runs(job_id=job.id) if run.id != target.id])
        tx.set_job_facts(job.id, checkpoint_bytes=found.size_bytes)
        tx.update_run(target.id, kept_bytes=room_bytes(job, found))
        if place is not None and target.moved_bytes is None:
            tx.update_run(target.id, moved_from="/".join(place), moved_bytes=found.size_bytes)


def room_bytes(job: Job, found: ManifestInfo) -> int:
    """Bytes for all checkpoints that the job keeps, each of the size found."""
    return found.size_bytes * job.spec.checkpoint.keep
