"""Timeouts: how long each step of a migration may take before it is aborted, in wall seconds.

Each has a minimum. It is longer for large checkpoints, for jobs that took longer before, and after a timeout. What a
job reports about itself (its steps, the size of its checkpoint) can extend a limit, but never beyond LONGEST_S: the
machine is billed meanwhile.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.migration.move import Move
from orchestrator.engine.migration.wasted import Cause, more_time
from orchestrator.store import Tx

READY_S = 120.0  # a machine that has not joined by then is released,
READY_MARKET_S = 900.0  # but a real one may take this long
QUIESCE_S = 60.0  # a source that does not reach a step boundary by then keeps running
RESTORE_S = 300.0
LONGEST_S = 4 * 3600.0

FLOOR_BYTES_PER_S = 25e6
"""A conservative storage bandwidth if none was measured: a quarter of a 1 Gbit/s network disk."""

MARGIN = 3.0  # a step may take this many times the slowest measured
MEASURED = 10  # only this many of the newest are considered


def ready_s(ctx: Context, move: Move) -> float:
    """Limit from the launch until a trainer is prepared, based on earlier launches of this job, plus the limit of its
    set-up."""
    factor = ctx.installation.clock.factor
    setup_s = 0.0 if move.job.spec.train.setup is None else ctx.installation.config.stalls.setup_fail_after_s
    with ctx.installation.store.read() as tx:
        slowest_s = _slowest_ms(tx, move.job.id, "migration.provision", "migration.ready") / 1000 / factor
        return _limit(tx, move, "ready", READY_S + setup_s, READY_MARKET_S / factor + setup_s, MARGIN * slowest_s)


def quiesce_s(ctx: Context, move: Move) -> float:
    """Limit until the source is quiesced at a checkpoint: a few of its steps, and the save."""
    source = move.living_source
    step_s = 0.0 if source is None else source.step_wall_s or 0.0
    with ctx.installation.store.read() as tx:
        return _limit(tx, move, "quiesce", QUIESCE_S, QUIESCE_S / 2 + MARGIN * step_s + _floor_s(tx, move))


def restore_s(ctx: Context, move: Move) -> float:
    """Limit until the target holds the checkpoint, based on its size and on earlier restores of this job."""
    with ctx.installation.store.read() as tx:
        took_ms = _slowest_ms(tx, move.job.id, "migration.transfer", "migration.restore")
        slowest_s = took_ms / 1000 / ctx.installation.clock.factor
        return _limit(tx, move, "restore", RESTORE_S, RESTORE_S / 2 + _floor_s(tx, move), MARGIN * slowest_s)


def _limit(tx: Tx, move: Move, cause: Cause, *least_s: float) -> float:
    return min(LONGEST_S, max(least_s) * more_time(tx, move.job.id, cause))


def _floor_s(tx: Tx, move: Move) -> float:
    return (tx.job_facts(move.job.id).checkpoint_bytes or 0) / FLOOR_BYTES_PER_S


def _slowest_ms(tx: Tx, job_id: str, before: str, after: str) -> int:
    """The longest market time (ms) between the ends of two steps in this job's newest moves. Other jobs' times are not
    used: a slow job would then extend the waits of all others."""
    begun: dict[str | None, int] = {}
    slowest = 0
    for event in reversed(tx.events(job_id=job_id, kinds=(before, after), limit=2 * MEASURED, newest_first=True)):
        if event.kind == before:
            begun[event.migration_id] = event.at_ms
        elif event.migration_id in begun:
            slowest = max(slowest, event.at_ms - begun[event.migration_id])
    return slowest
