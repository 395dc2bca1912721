"""Blame: decides whether a run ended through its job's own fault, which uses up a retry, or was lost.

A trainer's own report is checked against the node's agent, the provider, the checkpoints on disk, and earlier runs.
"""

from __future__ import annotations

import re
from functools import partial

from orchestrator.engine.calls import place_of
from orchestrator.engine.context import Context
from orchestrator.engine.machines.poll import accept
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job, Run
from providers.errors import ProviderError
from providers.instance import InstanceState
from trainers.checkpoint.manifest import ManifestName

ASK_EVERY_S = 5.0
MAX_LOSSES_WITHOUT_PROGRESS = 3
_HASH = re.compile("[0-9a-f]{32}")  # trainers.checkpoint.reader.weights_hash


def died_alone(ctx: Context, run: Run) -> bool | None:
    """Whether the machines of a dead trainer are still alive according to their provider; None: not known yet.

    The node's agent saw the trainer die before the raylet did. The machine may still have been going down, since it
    ends one process after another, so the provider is asked again afterwards. A run counts as lost if the lease has
    passed without an answer. A late answer still counts, because this process may have been paused.
    """
    unanswered = False if ctx.waited_s(f"died/{run.id}") > ctx.installation.config.lease_s else None
    try:
        provider = ctx.provider(run.offer_id)
        describe = partial(provider.describe, run.instance_ids)
        answer = ctx.ask(f"died-asked/{run.id}", place_of(run.offer_id), describe, every_s=ASK_EVERY_S)
        if answer is None:
            return unanswered
        described = answer.result()
    except (ProviderError, KeyError):
        return unanswered
    for instance in described:
        accept(ctx, provider, instance, answer)
    if not all(instance.alive for instance in described):
        return False
    up = [instance for instance in described if instance.state is InstanceState.RUNNING]
    return True if len(up) == len(run.instance_ids) else unanswered


def contradiction(ctx: Context, job: Job, run: Run, report: RunReport) -> str | None:
    """Why a run's claim to have finished is wrong; None if it is right. Raises CheckpointUnusable.

    A program that called attach() must have done all steps of the job file (or report that it stopped early) and have
    its last state in a checkpoint. A program that never attached has no steps or checkpoints: it finishes by ending.
    """
    if not attached(run, report):
        return None
    train, claim = job.spec.train, f"it reports that it finished at step {report.step}"
    if train.steps is not None and train.epochs is None and report.step < train.steps and not report.stopped_early:
        return f"{claim}, but the job has {train.steps} steps"
    if report.weights_hash is None or not _HASH.fullmatch(report.weights_hash):
        return f"{claim}, but gives no hash of its weights"
    if report.manifest is None or report.manifest_step != report.step:
        return f"{claim}, but there is no checkpoint of that step"
    catalog = ctx.catalog(f"finished/{run.id}")
    found = catalog.find(ctx.checkpoint_root(job), job.id, report.manifest)
    if found is None or found.step != report.step:
        return f"{claim}, but its checkpoint {report.manifest} is damaged or missing"
    restored = report.step == run.start_step  # there was nothing left to do
    if not restored and ManifestName.parse(report.manifest).generation != run.generation:
        return f"{claim}, but its checkpoint {report.manifest} belongs to another run"
    return None


def attached(run: Run, report: RunReport) -> bool:
    """Whether this run's program has reported any steps or checkpoints."""
    steps = max(run.start_step, run.last_step, report.step)
    return steps > 0 or report.manifest is not None or report.weights_hash is not None


def lost_without_progress(ctx: Context, job: Job, run: Run) -> bool:
    """Whether the job lost at least MAX_LOSSES_WITHOUT_PROGRESS machines in a row without saving a new step.

    Each of these runs starts at the same step and is lost before it commits a later one. Whatever the cause, continuing
    would spend money without limit. Preemptions do not count, and resuming the job resets the count. Raises
    CheckpointUnusable.
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
    if lost < MAX_LOSSES_WITHOUT_PROGRESS:
        return False
    catalog = ctx.catalog(f"lost/{run.id}")
    newest = catalog.newest(ctx.checkpoint_root(job), job.id, run.generation + 1).found
    return newest is None or newest.step <= run.start_step
