"""Migration: the persisted steps that bring a job's next run up and let the one before it go.

    provision > ready > checkpoint > transfer > restore > verify > cutover > release > done

Each function carries out one step and records it with a guarded update; any of them may be repeated after a crash. The
intent (a row with a deterministic token) is on disk before the launch. Until cutover a migration can be given up and
the source trains on; from the fence on it only goes forward. The first placement and a recovery are migrations whose
source does not exist or is already gone. Must not know: why the target was chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.engine import trainer_spec
from orchestrator.engine.checkpoints import CheckpointUnusable
from orchestrator.engine.context import Context
from orchestrator.errors import RailError, SiteError
from orchestrator.model import Job, Migration, Run, RunState, Step
from orchestrator.store import Tx
from providers.base import LaunchSpec
from providers.errors import CapacityError, PriceError, ProviderError, QuotaError
from providers.instance import InstanceState
from providers.money import NANO_USD, format_usd

READY_TIMEOUT_S = 120.0  # wall: a machine that has not joined by then is given up
HOLD_TIMEOUT_S = 60.0  # wall: a source that does not reach a step boundary by then keeps running
RESTORE_TIMEOUT_S = 300.0  # wall
HOLD_REFRESH_S = 5.0
LAUNCH_RETRY_S = 1.0


def advance(ctx: Context, migration: Migration) -> bool:
    """Carry a migration forward by at most one step. Returns whether anything changed."""
    with ctx.world.store.read() as tx:
        job = tx.job(migration.job_id)
        target = tx.run(migration.target_run_id)
        source = tx.run(migration.source_run_id) if migration.source_run_id else None
    before_cutover = migration.step not in (Step.CUTOVER, Step.RELEASE)
    if before_cutover and job.state in ("cancelling", "pausing"):
        return abort(ctx, migration, job, source, target, f"the job is {job.state}")
    try:
        return _STEPS[migration.step](ctx, migration, job, source, target)
    except CheckpointUnusable as error:
        if not before_cutover:  # the fence may exist, so there may be no way back: asked again
            if ctx.due(f"blocked/{migration.id}", 60.0):
                with ctx.write() as tx:
                    ctx.event(tx, "migration.blocked", str(error), job, run=target, migration=migration)
            return False
        return abort(ctx, migration, job, source, target, str(error), failed=True)


def _provision(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    retry = f"launch/{migration.id}"
    if not ctx.due(retry, LAUNCH_RETRY_S):
        return False
    provider = ctx.provider(migration.offer_id)
    try:
        _check_rails(ctx, migration)
        ids = provider.launch(
            LaunchSpec(
                token=migration.token,
                offer_id=migration.offer_id,
                user_data=ctx.runtime.bootstrap(token=migration.token),
                tags={
                    "tradewind-install": ctx.world.store.install_id,
                    "tradewind-job": job.id,
                    "tradewind-run": target.id,
                    "tradewind-generation": str(migration.generation),
                    "tradewind-project": job.project,
                },
            )
        )
    except RailError as error:
        return abort(ctx, migration, job, source, target, str(error))
    except ProviderError as error:
        if error.retryable:  # it may have taken effect: only the same token again can tell
            with ctx.write() as tx:
                tx.advance(
                    migration.id,
                    Step.PROVISION,
                    Step.PROVISION,
                    attempt=migration.attempt + 1,
                    error=str(error),
                )
            return False
        if isinstance(error, CapacityError | PriceError | QuotaError):
            with ctx.write() as tx:
                tx.add_availability(migration.offer_id, ctx.now_ms, "refused", target.id, str(error))
        return abort(ctx, migration, job, source, target, str(error))
    with ctx.write() as tx:
        if tx.advance(migration.id, Step.PROVISION, Step.READY, error=None):
            tx.update_run(target.id, instance_id=ids[0])
            tx.add_availability(migration.offer_id, ctx.now_ms, "launched", target.id, "")
            ctx.event(
                tx,
                "migration.provision",
                f"rented {migration.offer_id}",
                job,
                run=target,
                migration=migration,
                instance_id=ids[0],
            )
    return True


def _check_rails(ctx: Context, migration: Migration) -> None:
    """Nothing is rented past the ceilings of the configuration. Raises RailError."""
    rails = ctx.world.config.rails
    with ctx.world.store.read() as tx:
        billed = [run for run in tx.unsettled_runs() if run.instance_id is not None]
        prices = {point.offer_id: point.nano_usd_per_hour for point in tx.prices_as_of(ctx.now_ms)}
    if len(billed) >= rails.max_instances:
        raise RailError(
            f"{len(billed)} instances are up and rails.max_instances is {rails.max_instances}",
            hint="raise rails.max_instances in tradewind.toml, or wait",
        )
    rate = sum(prices.get(run.offer_id, 0) for run in billed) + prices.get(migration.offer_id, 0)
    if rate > rails.max_usd_per_hour * NANO_USD:
        raise RailError(
            f"this would spend {format_usd(rate)}/h and rails.max_usd_per_hour is {rails.max_usd_per_hour:g}",
            hint="raise rails.max_usd_per_hour in tradewind.toml, or wait",
        )


def _ready(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    instance = ctx.instances.get(target.instance_id or "")
    if instance is None or not instance.alive:
        why = instance.end_reason.value if instance is not None and instance.end_reason else "it is gone"
        with ctx.write() as tx:
            tx.add_availability(migration.offer_id, ctx.now_ms, "lost", target.id, why)
        return abort(ctx, migration, job, source, target, f"the instance ended before it was ready: {why}")
    if target.billed_from_ms is None and instance.billed_from_ms is not None:
        with ctx.write() as tx:
            tx.update_run(target.id, billed_from_ms=instance.billed_from_ms)
    if ctx.waited_s(f"ready/{migration.id}") > READY_TIMEOUT_S:
        return abort(ctx, migration, job, source, target, f"the instance did not join within {READY_TIMEOUT_S:.0f} s")
    if instance.state is not InstanceState.RUNNING or migration.token not in ctx.runtime.nodes():
        return False
    report = ctx.reports.get(target.id)
    if report is None or report.state == "absent":
        if ctx.due(f"prepare/{target.id}", 15.0):
            ctx.runtime.prepare(target.id, migration.token)
        return False
    if report.state in ("starting", "silent"):
        return False
    if report.state == "failed":
        return abort(ctx, migration, job, source, target, report.error or "the trainer could not be prepared")
    return _step(ctx, migration, job, target, Step.CHECKPOINT, "the node is ready", state="starting")


def _checkpoint(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    """Fix the checkpoint that the target starts from: the source's last word, or what it left."""
    if (lost := _target_lost(ctx, target)) is not None:
        return abort(ctx, migration, job, source, target, lost)
    if source is None or source.end is not None:
        if source is not None and source.instance_id is not None and source.billed_to_ms is None:
            return False  # not confirmed gone yet: it could still commit
        newest = ctx.checkpoints.newest(ctx.checkpoint_root(job), job.id, migration.generation)
        return _step(
            ctx,
            migration,
            job,
            target,
            Step.TRANSFER,
            f"starts from step {newest.step}" if newest else "starts from scratch",
            manifest=newest.name if newest else None,
        )
    report = ctx.reports.get(source.id)
    if report is not None and report.state == "holding" and report.manifest is not None:
        with ctx.write() as tx:
            tx.update_run(source.id, state="holding", last_step=report.step)
        return _step(
            ctx,
            migration,
            job,
            target,
            Step.TRANSFER,
            f"the source holds at step {report.step}",
            manifest=report.manifest,
        )
    if ctx.waited_s(f"hold/{migration.id}") > HOLD_TIMEOUT_S:
        return abort(ctx, migration, job, source, target, f"the source reached no step within {HOLD_TIMEOUT_S:.0f} s")
    if report is not None and report.state == "training":
        _hold(ctx, source)
    return False


def _transfer(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    """The checkpoint must be readable where the target runs. On one host both read the same folder."""
    if migration.manifest is not None:
        found = ctx.checkpoints.find(ctx.checkpoint_root(job), job.id, migration.manifest)
        if found is None:
            return abort(ctx, migration, job, source, target, f"checkpoint {migration.manifest} cannot be read")
        with ctx.write() as tx:
            tx.set_job_facts(job.id, checkpoint_bytes=found.size_bytes)
    _keep_holding(ctx, source)
    return _step(ctx, migration, job, target, Step.RESTORE, "the checkpoint is in place")


def _restore(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    if (lost := _target_lost(ctx, target)) is not None:
        return abort(ctx, migration, job, source, target, lost)
    _keep_holding(ctx, source)
    report = ctx.reports.get(target.id)
    if ctx.waited_s(f"restore/{migration.id}") > RESTORE_TIMEOUT_S:
        return abort(ctx, migration, job, source, target, f"not restored within {RESTORE_TIMEOUT_S:.0f} s")
    if report is None:
        return False
    if report.state in ("prepared", "starting"):
        if ctx.due(f"start/{target.id}", 15.0):
            try:
                spec = trainer_spec.run_spec(ctx, migration, job)
            except trainer_spec.MissingSecret as error:
                return abort(ctx, migration, job, source, target, str(error), failed=True)
            ctx.runtime.start(spec)
        return False
    if report.state == "failed":
        return abort(ctx, migration, job, source, target, report.error or "it failed", failed=True)
    if report.state in ("yielded", "fenced", "finished"):
        return abort(ctx, migration, job, source, target, f"the target is {report.state}")
    if report.state != "restored":
        return False
    return _step(ctx, migration, job, target, Step.VERIFY, f"restored at step {report.start_step}")


def _verify(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    """The target must hold exactly the checkpoint that was fixed."""
    if (lost := _target_lost(ctx, target)) is not None:
        return abort(ctx, migration, job, source, target, lost)
    report = ctx.reports.get(target.id)
    if report is None or report.state in ("silent", "absent"):
        return False
    if report.manifest != migration.manifest:
        return abort(
            ctx,
            migration,
            job,
            source,
            target,
            f"the target restored {report.manifest}, not {migration.manifest}",
        )
    _keep_holding(ctx, source)
    with ctx.write() as tx:
        tx.update_run(target.id, start_step=report.start_step)
    return _step(ctx, migration, job, target, Step.CUTOVER, f"step {report.start_step} verified")


def _cutover(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    """Raise the job's generation. Once the fence exists there is no way back; before it there is."""
    root = ctx.checkpoint_root(job)
    if ctx.checkpoints.fenced(root, job.id) < migration.generation:
        if job.state in ("cancelling", "pausing"):
            return abort(ctx, migration, job, source, target, f"the job is {job.state}")
        if (lost := _target_lost(ctx, target)) is not None:
            return abort(ctx, migration, job, source, target, lost)
        if source is not None and source.end is None:
            report = ctx.reports.get(source.id)
            if report is None or report.state != "holding" or report.manifest != migration.manifest:
                return abort(ctx, migration, job, source, target, "the source did not wait at its checkpoint")
        ctx.checkpoints.fence(root, job.id, migration.generation, migration.manifest)
    now = ctx.now_ms
    with ctx.write() as tx:
        if not tx.advance(migration.id, Step.CUTOVER, Step.RELEASE):
            return False
        reached = max((run.last_step for run in tx.runs(job_id=job.id)), default=0)
        tx.update_run(
            target.id,
            state="training",
            training_from_ms=now,
            last_step=target.start_step,
            repeated_steps=max(0, reached - target.start_step),
        )
        if source is not None and source.end is None:
            tx.update_run(source.id, state="ended", end="moved", training_to_ms=now)
        tx.set_job_state(job.id, "running")
        ctx.event(
            tx,
            "migration.cutover",
            f"generation {migration.generation} trains on {migration.offer_id} from step {target.start_step}",
            job,
            run=target,
            migration=migration,
            step=target.start_step,
        )
    return True


def _release(ctx: Context, migration: Migration, job: Job, source: Run | None, target: Run) -> bool:
    """The source's instance is ended by engine.reap; done when its provider confirms that."""
    if source is not None and source.instance_id is not None and source.billed_to_ms is None:
        return False
    with ctx.write() as tx:
        if tx.advance(migration.id, Step.RELEASE, Step.DONE):
            ctx.event(
                tx,
                "migration.done",
                f"{migration.reason}: now on {migration.offer_id}",
                job,
                run=target,
                migration=migration,
                market_s=(ctx.now_ms - migration.created_at_ms) / 1000,
            )
    return True


def abort(
    ctx: Context,
    migration: Migration,
    job: Job,
    source: Run | None,
    target: Run,
    why: str,
    *,
    failed: bool = False,
) -> bool:
    """Give a migration up: the source trains on, the target's instance is released by engine.reap.

    `failed` says that the job's own code is to blame: it counts against its retries.
    """
    now = ctx.now_ms
    first_line = why.strip().splitlines()[-1] if why.strip() else "unknown"
    with ctx.write() as tx:
        if not tx.advance(migration.id, migration.step, Step.ABORTED, error=why):
            return False
        tx.update_run(target.id, state="ended", end="failed" if failed else "aborted", training_to_ms=now)
        source_lives = source is not None and source.end is None
        if source_lives and source is not None:
            tx.update_run(source.id, state="training")
        if job.state not in ("cancelling", "pausing"):
            tx.set_job_state(job.id, "running" if source_lives else "queued")
        ctx.event(tx, "migration.aborted", f"gave up: {first_line}", job, run=target, migration=migration)
        if failed:
            count_failure(ctx, tx, job, target, why)
    if source_lives and source is not None:
        _quietly(lambda: ctx.runtime.unhold(source.id))
    _quietly(lambda: ctx.runtime.kill(target.id))
    return True


def count_failure(ctx: Context, tx: Tx, job: Job, run: Run, error: str) -> None:
    """The job's own code raised: queue it again after a growing pause, or fail it when its retries are used up."""
    failures = tx.job_facts(job.id).failures + 1
    tx.set_job_facts(job.id, failures=failures, error=error)
    last_line = error.strip().splitlines()[-1] if error.strip() else "unknown error"
    if failures > job.spec.retries:
        tx.set_job_state(job.id, "failed")
        tx.set_job_facts(job.id, finished_at_ms=ctx.now_ms)
        ctx.event(
            tx,
            "job.failed",
            f"failed after {failures} attempts: {last_line}",
            job,
            run=run,
            failures=failures,
        )
    else:
        pause_s = min(60.0, 2.0**failures) * ctx.world.clock.factor
        tx.set_job_state(job.id, "queued")
        tx.set_job_facts(job.id, next_decision_ms=ctx.now_ms + int(pause_s * 1000))
        ctx.event(
            tx,
            "run.failed",
            f"the job's code raised ({failures} of {job.spec.retries} retries used): {last_line}",
            job,
            run=run,
            failures=failures,
        )


def _target_lost(ctx: Context, target: Run) -> str | None:
    """Why the target cannot take over; None while it can."""
    instance = ctx.instances.get(target.instance_id or "")
    if instance is None or not instance.alive:
        return "the target's instance is gone"
    if instance.notice_deadline_ms is not None:
        return "the target's instance was given notice"
    report = ctx.reports.get(target.id)
    if report is not None and report.state == "absent":
        return "the target's trainer is gone"
    return None


def _hold(ctx: Context, source: Run) -> None:
    if ctx.due(f"hold-call/{source.id}", HOLD_REFRESH_S):
        ctx.runtime.hold(source.id)


def _keep_holding(ctx: Context, source: Run | None) -> None:
    if source is not None and source.end is None:
        _hold(ctx, source)


def _step(
    ctx: Context,
    migration: Migration,
    job: Job,
    target: Run,
    to: Step,
    message: str,
    *,
    manifest: str | None = None,
    state: RunState | None = None,
) -> bool:
    with ctx.write() as tx:
        if tx.advance(migration.id, migration.step, to, manifest=manifest or migration.manifest):
            if state is not None:
                tx.update_run(target.id, state=state)
            ctx.event(tx, f"migration.{migration.step.value}", message, job, run=target, migration=migration)
    return True


def _quietly(call: Callable[[], None]) -> None:
    """A courtesy to a run that may be gone: its failure changes nothing, since holds expire and instances end."""
    try:
        call()
    except SiteError:
        return


_STEPS: dict[Step, Callable[[Context, Migration, Job, Run | None, Run], bool]] = {
    Step.PROVISION: _provision,
    Step.READY: _ready,
    Step.CHECKPOINT: _checkpoint,
    Step.TRANSFER: _transfer,
    Step.RESTORE: _restore,
    Step.VERIFY: _verify,
    Step.CUTOVER: _cutover,
    Step.RELEASE: _release,
}
