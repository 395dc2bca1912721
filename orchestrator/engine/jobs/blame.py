"""Blame: whether a run ended by its job's own doing, which counts against the job's retries, or was lost to it.

What a trainer says of its end is weighed against what others know: its node's agent, its provider, the checkpoints on
disk, and the runs before it.
"""

from __future__ import annotations

import re

from orchestrator.engine.context import Context
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job, Run
from providers.errors import ProviderError
from providers.instance import InstanceState
from trainers.checkpoint.manifest import ManifestName

ASK_EVERY_S = 5.0
LOSSES_IN_VAIN = 3
_HASH = re.compile("[0-9a-f]{32}")  # trainers.checkpoint.reader.weights_hash


def died_alone(ctx: Context, run: Run) -> bool | None:
    """Whether the machine of a trainer that died lives on, by what its provider says now; None: it does not say yet.

    The node's agent has seen the trainer die before the raylet did. That may have been the machine's end all the same,
    which takes one process after the other: so the provider is asked again, after the fact. Without its word within a
    lease, the run counts as lost.
    """
    assert run.instance_id is not None
    if ctx.waited_s(f"died/{run.id}") > ctx.installation.config.lease_s:
        return False
    if not ctx.due(f"died-asked/{run.id}", ASK_EVERY_S):
        return None
    try:
        described = list(ctx.provider(run.offer_id).describe([run.instance_id]))
    except (ProviderError, KeyError):
        return None
    for instance in described:
        ctx.instances[run.instance_id] = instance
        if not instance.alive:
            return False
        if instance.state is InstanceState.RUNNING:
            return True
    return None


def contradiction(ctx: Context, job: Job, run: Run, report: RunReport) -> str | None:
    """What is wrong with a run's word that it has finished; None if nothing is. Raises CheckpointUnusable.

    A program that attached has done all steps of the job file (or says that it stops early), and its last state is in
    a checkpoint. One that never attached has no steps and no checkpoint; it is finished when it ends.
    """
    if not attached(run, report):
        return None
    train, said = job.spec.train, f"it says that it finished at step {report.step}"
    if train.steps is not None and train.epochs is None and report.step < train.steps and not report.stopped_early:
        return f"{said}, but the job has {train.steps} steps"
    if report.weights_hash is None or not _HASH.fullmatch(report.weights_hash):
        return f"{said}, but not with which weights"
    if report.manifest is None or report.manifest_step != report.step:
        return f"{said}, but has no checkpoint of that step"
    found = ctx.checkpoints.find(ctx.checkpoint_root(job), job.id, report.manifest)
    if found is None or found.step != report.step:
        return f"{said}, but its checkpoint {report.manifest} is damaged or not there"
    restored = report.step == run.start_step  # nothing was left to be done
    if not restored and ManifestName.parse(report.manifest).generation != run.generation:
        return f"{said}, but its checkpoint {report.manifest} is another run's"
    return None


def attached(run: Run, report: RunReport) -> bool:
    """Whether anything is known of steps or checkpoints of this run's program."""
    steps = max(run.start_step, run.last_step, report.step)
    return steps > 0 or report.manifest is not None or report.weights_hash is not None


def lost_in_vain(ctx: Context, job: Job, run: Run) -> bool:
    """Whether this loss is at least the third in a row from which the job gets no further.

    Runs of which each begins at the same step and is lost before it commits a later one: whatever their cause, to go on
    like this spends money without end. A preemption is its provider's doing and is not counted; resuming the job begins
    anew. Raises CheckpointUnusable.
    """
    with ctx.installation.store.read() as tx:
        resumed = tx.events(job_id=job.id, kinds=("job.resumed",), limit=1, newest_first=True)
        trained = [each for each in tx.runs(job_id=job.id) if each.training_from_ms is not None]
    lost = 1
    for before in sorted(trained, key=lambda each: each.generation, reverse=True):
        if before.generation < run.generation:
            if before.start_step < run.start_step or (resumed and before.created_at_ms < resumed[0].at_ms):
                break
            lost += before.end == "lost"
    if lost < LOSSES_IN_VAIN:
        return False
    newest = ctx.checkpoints.newest(ctx.checkpoint_root(job), job.id, run.generation + 1).found
    return newest is None or newest.step <= run.start_step
