"""The second half of a migration: checkpoint > transfer > restore > verify > cutover > release.

The source is quiesced at a checkpoint while the target restores it. Cutover raises the job's generation with a fence;
after that the move cannot be reversed. Without a living source, the target starts from the last saved checkpoint.
"""

from __future__ import annotations

from typing import Any

from orchestrator.engine.billing import checkpoints_kept
from orchestrator.engine.context import Context
from orchestrator.engine.inputs.latencies import HANDOVER
from orchestrator.engine.jobs import trainer_spec
from orchestrator.engine.jobs.background_catalog import BackgroundCatalog
from orchestrator.engine.jobs.blame import died_alone
from orchestrator.engine.jobs.missing_checkpoint import pauses_without
from orchestrator.engine.machines.reports import MALFORMED_S
from orchestrator.engine.migration import timeouts
from orchestrator.engine.migration.bring_up import abandoned
from orchestrator.engine.migration.move import MOVING, Move, abort, step, waits
from orchestrator.engine.migration.revalidate import no_longer_pays
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Run, Step, latest_trained
from orchestrator.store import Tx

QUIESCE_REFRESH_S = 5.0
START_EVERY_S = 15.0
_OVER = ("absent", "failed", "checkpointed_and_stopped", "fenced", "finished")


def checkpoint(ctx: Context, move: Move) -> bool:
    """Choose the checkpoint that the target starts from: that of the quiesced source, or the newest one left. If the
    source is silent, wait until it answers or its lease has expired."""
    if abandoned(ctx, move):
        return True
    migration, source = move.migration, move.living_source
    if waits(migration):
        report = ctx.reports.get(move.target.id)
        return _target_over(ctx, move, report) if report is not None and report.state in _OVER else False
    if source is None:
        if move.source is not None and not ctx.over(move.source):
            return False  # it could still commit
        newest = _catalog(ctx, move).newest(ctx.checkpoint_root(move.job), move.job.id, migration.generation)
        if pauses_without(ctx, move.job, newest):
            return True
        found = newest.found
        message = f"starts from step {found.step}" if found else "starts from scratch"
        message += "".join(f"; skipped: {why}" for why in newest.damaged)
        return step(ctx, move, Step.TRANSFER, message, manifest=found.name if found else None)
    report = ctx.reports.get(source.id)
    if report is not None and report.state == "quiesced" and report.manifest is not None:
        _keep_quiesced(ctx, move)
        with ctx.write() as tx:
            tx.update_run(source.id, state="quiesced", last_step=report.step, saved_step=report.manifest_step)
        message = f"training on the old machine is paused at step {report.step}"
        return step(ctx, move, Step.TRANSFER, message, manifest=report.manifest)
    waited_s = ctx.waited_s(f"quiesce/{migration.id}")
    suspected = report is not None and report.silent_s > ctx.installation.config.suspect_after_s
    if not suspected and waited_s > timeouts.QUIESCE_S and waited_s > (limit_s := timeouts.quiesce_s(ctx, move)):
        return abort(
            ctx,
            move,
            f"the old machine did not save a checkpoint and its outputs within {limit_s:.0f} s",
            cause="quiesce",
        )
    if report is not None and report.state == "training" and ctx.due(f"quiesce-call/{source.id}", QUIESCE_REFRESH_S):
        if no_longer_pays(ctx, move, ready=True):
            return True
        ctx.runtime.quiesce(source.id, migration.generation)
    return False


def transfer(ctx: Context, move: Move) -> bool:
    """Make the checkpoint readable where the target runs. On one host, both read the same folder."""
    if abandoned(ctx, move):
        return True
    migration = move.migration
    _keep_quiesced(ctx, move)
    if migration.manifest is not None:
        found = _catalog(ctx, move).find(ctx.checkpoint_root(move.job), move.job.id, migration.manifest)
        if found is None:
            return abort(ctx, move, f"checkpoint {migration.manifest} cannot be read", cause="checkpoint")
        checkpoints_kept.bring(ctx, move.job, move.target, found)
    there = "no checkpoint to transfer" if migration.manifest is None else "the checkpoint is in place"
    return step(ctx, move, Step.RESTORE, there)


def restore(ctx: Context, move: Move) -> bool:
    """Wait until the target has loaded the checkpoint."""
    if abandoned(ctx, move):
        return True
    migration, target = move.migration, move.target
    _keep_quiesced(ctx, move)
    report = ctx.reports.get(target.id)
    waited_s = ctx.waited_s(f"restore/{migration.id}")
    if waited_s > timeouts.RESTORE_S and waited_s > (limit_s := timeouts.restore_s(ctx, move)):
        return abort(ctx, move, f"the checkpoint was not restored within {limit_s:.0f} s", cause="restore")
    if report is None:
        return False
    if report.state in ("prepared", "starting"):
        if ctx.due(f"start/{target.id}", START_EVERY_S):
            if (missing := ctx.secrets.missing(move.job, ctx.typed_name)) is not None:
                return abort(ctx, move, missing)  # as in engine.migration.bring_up
            ctx.runtime.start(trainer_spec.run_spec(ctx, migration, move.job))
        return False
    if report.state in _OVER:
        return _target_over(ctx, move, report)
    if report.state == "malformed" and ctx.waited_s(f"malformed/{target.id}") > MALFORMED_S:
        return abort(ctx, move, f"its reports are not valid: {report.error}", cause="trainer", failed=True)
    if report.state != "restored":
        return False
    begins = "ready to start" if report.manifest is None else f"restored the checkpoint of step {report.start_step}"
    return step(ctx, move, Step.VERIFY, begins)


def verify(ctx: Context, move: Move) -> bool:
    """Check that the target holds the chosen checkpoint, or an older one because it found the chosen one damaged.

    Only the target reads every byte. If the source is still alive, it keeps training and saves a new one.
    """
    if abandoned(ctx, move):
        return True
    _keep_quiesced(ctx, move)
    report = ctx.reports.get(move.target.id)
    if report is not None and report.state in _OVER:
        return _target_over(ctx, move, report)
    if report is None or report.state != "restored":
        return _overdue(ctx, move)
    if report.start_step != report.manifest_step:  # a run that has restored a checkpoint begins with it
        return _overdue(ctx, move, f"the new machine restored {report.manifest} to begin at step {report.start_step}")
    fixed, passed_over = move.migration.manifest, None
    message = "it begins at step 0" if report.manifest is None else f"step {report.start_step} verified"
    if report.manifest != fixed:
        if fixed is None or report.manifest is None or move.living_source is not None:
            return abort(ctx, move, f"the new machine restored {report.manifest}, not {fixed}", cause="checkpoint")
        message, passed_over = f"{message}; skipped: {fixed}, which is damaged", fixed
    if no_longer_pays(ctx, move, ready=True, restored=True):
        return True
    with ctx.write() as tx:
        tx.update_run(move.target.id, start_step=report.start_step)
    return step(ctx, move, Step.CUTOVER, message, manifest=report.manifest, passed_over=passed_over)


def cutover(ctx: Context, move: Move) -> bool:
    """Raise the job's generation. Before the fence exists the move can be aborted; afterwards it cannot.

    Reaching this step, stored under the present leadership, declares the intention to fence. A later leader finds and
    resolves it: it also writes the fence, or it aborts the move, which voids the generation first. A control plane that
    lost leadership before it wrote the fence finds the generation void when it resumes.
    """
    migration, job, target = move.migration, move.job, move.target
    root, catalog = ctx.checkpoint_root(job), _catalog(ctx, move)
    fence = (root, job.id, migration.generation, migration.manifest)
    begun = catalog.has_asked_for_fence(*fence)  # then the target may already train
    if begun or catalog.fenced(root, job.id) < migration.generation:
        if not begun:
            if job.state not in MOVING:
                return abort(ctx, move, f"the job is {job.state}")
            if abandoned(ctx, move):
                return True
            report = ctx.reports.get(target.id)
            if report is not None and report.state in _OVER:
                return _target_over(ctx, move, report)
            if report is None or report.state != "restored":
                return _overdue(ctx, move)
            if (why := _outdated(ctx, move)) is not None:
                return abort(ctx, move, why, cause="checkpoint", at_once=True)
        if not catalog.fence(*fence):
            return abort(
                ctx, move, "the old machine resumed training before the handover", cause="checkpoint", at_once=True
            )
    elif job.state not in (*MOVING, "cancelling", "pausing"):
        return abort(ctx, move, f"the job is {job.state}")  # its source ended it just before the fence
    now = ctx.now_ms
    with ctx.write() as tx:
        if not tx.advance(migration.id, Step.CUTOVER, Step.RELEASE):
            return False
        before = latest_trained([run for run in tx.runs(job_id=job.id) if run.id != target.id])
        reached = 0 if before is None else before.last_step  # repeated steps before that are counted
        tx.update_run(
            target.id,
            state="training",
            training_from_ms=now,
            last_step=target.start_step,
            saved_step=target.start_step,
            repeated_steps=max(0, reached - target.start_step),
        )
        if move.living_source is not None:
            tx.update_run(move.living_source.id, state="ended", end="moved", training_to_ms=now)
        if job.state in MOVING:
            tx.set_job_state(job.id, "running")
        message = f"training on {migration.offer_id} from step {target.start_step} (generation {migration.generation})"
        reported: dict[str, Any] = {"step": target.start_step}
        if move.living_source is not None and (gap_s := _gap_s(ctx, tx, move)) is not None:
            reported[HANDOVER] = gap_s
        ctx.event(tx, "migration.cutover", message, job, run=target, migration=migration, **reported)
    return True


def release(ctx: Context, move: Move) -> bool:
    """Wait until the provider confirms the end of the source's machine (engine.machines.reap ends it)."""
    migration, source = move.migration, move.source
    if source is not None and source.instance_id is not None and source.billed_to_ms is None:
        return False
    with ctx.write() as tx:
        if tx.advance(migration.id, Step.RELEASE, Step.DONE):
            ctx.event(
                tx,
                "migration.done",
                f"{migration.reason}: now on {migration.offer_id}",
                move.job,
                run=move.target,
                migration=migration,
                market_s=(ctx.now_ms - migration.created_at_ms) / 1000,
            )
    return True


def _catalog(ctx: Context, move: Move) -> BackgroundCatalog:
    """The answers for the present step: those for an earlier step may be out of date."""
    return ctx.catalog(f"{move.migration.step.value}/{move.migration.id}")


def _gap_s(ctx: Context, tx: Tx, move: Move) -> float | None:
    """Market seconds since the source was asked to quiesce."""
    reported = tx.events(job_id=move.job.id, kinds=("migration.ready",), limit=1, newest_first=True)
    asked = reported and reported[0].migration_id == move.migration.id
    return (ctx.now_ms - reported[0].at_ms) / 1000 if asked else None


def _outdated(ctx: Context, move: Move) -> str | None:
    """Why the target's checkpoint is not the source's newest; None if it is.

    There is no need to wait for a source that ended, fell silent or fenced itself since it was quiesced: before it
    could continue training, it would void this generation, and then the fence cannot be written.
    """
    report = None if move.living_source is None else ctx.reports.get(move.living_source.id)
    if report is not None and report.state not in ("silent", "fenced"):
        if report.state != "quiesced" or report.manifest != move.migration.manifest:
            return "the old machine did not wait at its checkpoint"
    elif move.source is not None:
        root = ctx.checkpoint_root(move.job)
        newest = _catalog(ctx, move).newest(root, move.job.id, move.migration.generation).found
        if newest is not None and newest.name not in (move.migration.manifest, _passed_over(ctx, move)):
            return f"the old machine saved step {newest.step}, which the new one does not have"
    return None


def _passed_over(ctx: Context, move: Move) -> object:
    """The checkpoint that the target found damaged; None if it found no damage."""
    with ctx.installation.store.read() as tx:
        reported = tx.events(job_id=move.job.id, kinds=("migration.verify",), limit=1, newest_first=True)
    return reported[0].data.get("passed_over") if reported and reported[0].migration_id == move.migration.id else None


def _target_over(ctx: Context, move: Move, report: RunReport) -> bool:
    if report.state == "failed":
        why = report.error or "the trainer on the new machine failed"
        if report.exit_status is not None and not (alone := died_alone(ctx, move.target)):
            return False if alone is None else abort(ctx, move, f"{why}, and its machine is gone", cause="taken")
        return abort(ctx, move, why, cause="trainer", failed=True, permanent=report.permanent)
    state = "gone" if report.state == "absent" else report.state
    return abort(ctx, move, f"the trainer on the new machine is {state}", cause="trainer")


def _overdue(ctx: Context, move: Move, why: str = "the new machine does not answer") -> bool:
    """Abort if a target that had restored does not answer correctly within the lease."""
    if ctx.waited_s(f"answer/{move.migration.id}") > ctx.installation.config.lease_s:
        return abort(ctx, move, why, cause="trainer")
    return False


def _quiesce(ctx: Context, source: Run, successor: int) -> None:
    if ctx.due(f"quiesce-call/{source.id}", QUIESCE_REFRESH_S):
        ctx.runtime.quiesce(source.id, successor)


def _keep_quiesced(ctx: Context, move: Move) -> None:
    if move.living_source is not None:
        _quiesce(ctx, move.living_source, move.migration.generation)
