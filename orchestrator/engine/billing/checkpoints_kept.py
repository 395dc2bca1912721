"""Checkpoints kept: records a job's checkpoint size, origin and storage, for plans and bills.

Storage is billed for as many checkpoints of that size as the job keeps, as long as the machine is billed.
"""

from __future__ import annotations

from orchestrator.engine.billing.egress_estimates import estimated_nano_usd, fetched, list_rate
from orchestrator.engine.context import Context
from orchestrator.engine.inputs.snapshot import checkpoint_at
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable, ManifestInfo
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job, Run
from orchestrator.store import Tx
from providers.billing.charges import GB, Usage
from providers.money import about_usd, format_usd
from providers.offer import location_of

MEASURE_EVERY_S = 10.0  # wall, until the size is known


def measure(ctx: Context, job: Job, run: Run, report: RunReport) -> None:
    """Record the checkpoint size of a run that started from scratch, once it has a checkpoint."""
    if run.kept_bytes is not None or report.manifest is None or not ctx.due(f"weighed/{run.id}", MEASURE_EVERY_S):
        return
    try:
        found = ctx.catalog(f"weighed/{run.id}").find(ctx.checkpoint_root(job), job.id, report.manifest)
    except CheckpointUnusable:
        return  # asked again
    if found is not None:
        with ctx.write() as tx:
            tx.set_job_facts(job.id, checkpoint_bytes=found.size_bytes)
            tx.update_run(run.id, kept_bytes=room_bytes(job, found))


def bring(ctx: Context, job: Job, target: Run, found: ManifestInfo) -> None:
    """Record that this checkpoint is copied to the machine of `target`; only once, even if the step is repeated or
    several runs use the machine in turn."""
    with ctx.write() as tx:
        saved_at = checkpoint_at([run for run in tx.runs(job_id=job.id) if run.id != target.id])
        tx.set_job_facts(job.id, checkpoint_bytes=found.size_bytes)
        tx.update_run(target.id, kept_bytes=room_bytes(job, found))
        place = fetched(location_of(target.offer_id), saved_at, ctx.bucket_of(job))
        if place is not None and target.moved_bytes is None:
            named = "/".join((*place, "")[:3])  # the location of a bucket has no zone
            tx.update_run(target.id, moved_from=named, moved_bytes=found.size_bytes)
            _tell(ctx, tx, job, target, Usage(location_of(target.offer_id), place, found.size_bytes))


def _tell(ctx: Context, tx: Tx, job: Job, target: Run, usage: Usage) -> None:
    """Record how an estimate was made. The estimate is booked when the machine has ended."""
    amount = estimated_nano_usd(usage)
    if not amount:
        return
    where, size_gb = "/".join(filter(None, usage.moved_from[:2])), usage.moved_bytes / GB
    rate = list_rate(usage.moved_from, usage.at)
    ctx.event(
        tx,
        "egress.estimated",
        f"fetching the checkpoint ({size_gb:.3g} GB) from {where} costs about {about_usd(amount)}: an estimate from "
        f"the list price of the catalogue, {format_usd(rate, 4)} per GB, which {usage.moved_from[0]} bills",
        job,
        run=target,
        bytes=usage.moved_bytes,
        nano_usd=amount,
        nano_usd_per_gb=rate,
        source=where,
    )


def room_bytes(job: Job, found: ManifestInfo) -> int:
    """Bytes for all checkpoints that the job keeps, each of the size found."""
    return found.size_bytes * job.spec.checkpoint.most_kept
