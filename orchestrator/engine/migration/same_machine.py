"""Same machine: restarts a job whose trainer ended by itself on the machine that it already has.

The machine is paid for and has the job's files, so one attempt is made there before another machine is rented. The
failed run is billed up to now and the next one from now on, in the transaction that counts the failure: a reader of the
store sees either a failed run that is not counted yet, or the next attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.engine.billing.accrue import book, prices_known_until_ms
from orchestrator.engine.calls import Answer, place_of
from orchestrator.engine.context import Context
from orchestrator.engine.jobs.checkpoints import CheckpointDamaged
from orchestrator.engine.machines.collect import Polled, question, record
from orchestrator.engine.migration.intent import is_asked, open_migration
from orchestrator.model import Job, Run
from orchestrator.store import Tx
from providers.base import Provider
from providers.errors import ProviderError
from providers.instance import Instance, InstanceState
from providers.offer import provider_of

LONGEST_WAIT_S = 10.0  # wall: then the machine is not used again


@dataclass(frozen=True, slots=True)
class Free:
    """The market time (ms) up to which a failed run is billed if the next attempt can use its machine; None: it
    cannot."""

    from_ms: int | None = None


def free(ctx: Context, job: Job, run: Run) -> Free | None:
    """Whether the next attempt can use the failed run's machine; None while its provider has not answered.

    It cannot if the run's process did not end by itself, the machine is gone or has a preemption notice, an attempt was
    already made on it, the job has a standby, the run has several machines, or something that another attempt needs is
    missing.
    """
    report = ctx.reports.get(run.id)
    if report is None or report.state != "failed" or run.machine_from_ms is not None or run.nodes > 1:
        return Free()
    if job.state not in ("starting", "running") or run.instance_id is None or run.billed_from_ms is None:
        return Free()
    if any(move.job_id == job.id and move.reason == "standby" for move in ctx.work.migrations):
        return Free()
    provider = ctx.installation.providers.get(provider_of(run.offer_id))
    if provider is None or ctx.secrets.missing(job) is not None:
        return Free()
    try:
        answer = _asked(ctx, provider, run, run.instance_id) if is_asked(ctx, job) else None
    except CheckpointDamaged:
        return Free()
    if answer is None:
        return None if ctx.waited_s(f"free-since/{run.id}") < LONGEST_WAIT_S else Free()
    try:
        machine, polled = answer.result()
    except ProviderError:
        return Free()
    if machine is None or machine.state is not InstanceState.RUNNING or machine.notice_deadline_ms is not None:
        return Free()
    # a run can be billed only as far as prices are known
    record(ctx.installation, ctx.leadership, provider, Answer(answer.asked_ms, answer.asked_s, polled))
    return Free(_billable_to_ms(ctx, run, answer.asked_ms))


def _asked(
    ctx: Context, provider: Provider, run: Run, instance_id: str
) -> Answer[tuple[Instance | None, Polled]] | None:
    """What the provider reports about a machine and its prices."""
    key = f"free/{run.id}"
    answer = ctx.answer(key)
    if answer is None and ctx.may_ask(key, place_of(run.offer_id)):
        poll = question(ctx.installation, provider)

        def ask() -> tuple[Instance | None, Polled]:
            return next((each for each in provider.describe([instance_id]) if each.id == instance_id), None), poll()

        answer = ctx.begin(key, place_of(run.offer_id), ask)
    return answer


def _billable_to_ms(ctx: Context, run: Run, now: int) -> int | None:
    assert run.billed_from_ms is not None
    with ctx.installation.store.read() as tx:
        known_ms = prices_known_until_ms(tx, run.offer_id, ctx.now_ms)
    began_ms = max(run.billed_from_ms, run.training_from_ms or 0)
    return None if known_ms is None or min(now, known_ms) <= began_ms else min(now, known_ms)


def try_again(ctx: Context, tx: Tx, job: Job, failed: Run, from_ms: int) -> None:
    """Start the next attempt on the failed run's machine, in the transaction that counts the failure."""
    tx.update_run(failed.id, billed_to_ms=from_ms, training_to_ms=from_ms)
    book(tx, failed.id, from_ms)
    trained = [run for run in tx.runs(job_id=job.id) if run.training_from_ms is not None]
    source = max(trained, key=lambda run: run.generation, default=None)
    migration = open_migration(ctx, tx, job, failed.offer_id, "retry", source=source, after=tx.run(failed.id))
    tx.set_job_state(job.id, "starting")
    ctx.event(
        tx,
        "migration.provision",
        f"retrying on the same machine, {failed.offer_id}",
        job,
        run=tx.run(migration.target_run_id),
        migration=migration,
        instance_id=failed.instance_id,
    )
