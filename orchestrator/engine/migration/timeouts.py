"""Timeouts: how long a step of a migration may take before it is given up, in wall seconds.

Each is at least a fixed time, longer where the checkpoint is large or where the job was measured to take longer, and
longer after one that ran out. What a job says of itself (its steps, the size of its checkpoint) can make a limit
longer, but never longer than LONGEST_S: a machine is billed meanwhile.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from orchestrator.engine.migration.in_vain import Cause, more_time
from orchestrator.engine.migration.move import Move
from orchestrator.store import Tx

READY_S = 120.0  # a machine that has not joined by then is given up,
READY_MARKET_S = 900.0  # but a real one may take so long
QUIESCE_S = 60.0  # a source that does not reach a step boundary by then keeps running
RESTORE_S = 300.0
LONGEST_S = 4 * 3600.0

FLOOR_BYTES_PER_S = 25e6
"""A conservative bandwidth of storage, where none was measured: a quarter of what a network disk of 1 Gbit/s gives."""

MARGIN = 3.0  # by what the slowest that was measured may be exceeded
MEASURED = 10  # the newest so many are looked at


def ready_s(ctx: Context, move: Move) -> float:
    """From the launch until a trainer is prepared: by how long that took for this job before, and what its set-up may
    take, which has a limit of its own."""
    factor = ctx.installation.clock.factor
    setup_s = 0.0 if move.job.spec.train.setup is None else ctx.installation.config.stalls.setup_fail_after_s
    with ctx.installation.store.read() as tx:
        slowest_s = _slowest_ms(tx, move.job.id, "migration.provision", "migration.ready") / 1000 / factor
        return _limit(tx, move, "ready", READY_S + setup_s, READY_MARKET_S / factor + setup_s, MARGIN * slowest_s)


def quiesce_s(ctx: Context, move: Move) -> float:
    """Until the source is quiesced at a checkpoint: a few of its steps, and the checkpoint."""
    source = move.living_source
    step_s = 0.0 if source is None else source.step_wall_s or 0.0
    with ctx.installation.store.read() as tx:
        return _limit(tx, move, "quiesce", QUIESCE_S, QUIESCE_S / 2 + MARGIN * step_s + _floor_s(tx, move))


def restore_s(ctx: Context, move: Move) -> float:
    """Until the target holds the checkpoint: by its size, and by how long this job took before."""
    with ctx.installation.store.read() as tx:
        took_ms = _slowest_ms(tx, move.job.id, "migration.transfer", "migration.restore")
        slowest_s = took_ms / 1000 / ctx.installation.clock.factor
        return _limit(tx, move, "restore", RESTORE_S, RESTORE_S / 2 + _floor_s(tx, move), MARGIN * slowest_s)


def _limit(tx: Tx, move: Move, cause: Cause, *least_s: float) -> float:
    return min(LONGEST_S, max(least_s) * more_time(tx, move.job.id, cause))


def _floor_s(tx: Tx, move: Move) -> float:
    return (tx.job_facts(move.job.id).checkpoint_bytes or 0) / FLOOR_BYTES_PER_S


def _slowest_ms(tx: Tx, job_id: str, before: str, after: str) -> int:
    """The longest market time between the ends of two steps, of the newest moves of a job that came so far. What other
    jobs took says nothing: a slow one would let machines of all others wait."""
    begun: dict[str | None, int] = {}
    slowest = 0
    for event in reversed(tx.events(job_id=job_id, kinds=(before, after), limit=2 * MEASURED, newest_first=True)):
        if event.kind == before:
            begun[event.migration_id] = event.at_ms
        elif event.migration_id in begun:
            slowest = max(slowest, event.at_ms - begun[event.migration_id])
    return slowest
