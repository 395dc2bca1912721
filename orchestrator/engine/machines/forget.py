"""Forget: removes orders and reports of machines that have ended and are booked.

Only runs that the store says are booked are forgotten, so that a control plane that was paused for long harms no run
that began meanwhile.
"""

from __future__ import annotations

from contextlib import suppress

from orchestrator.engine.context import Context
from orchestrator.errors import NotFoundError, RowError, SiteError


def forget_machines(ctx: Context) -> bool:
    """Delete the control objects of runs that are over. Returns False: no row of the store changes."""
    in_use = {instance_id for run in ctx.work.runs for instance_id in run.instance_ids}
    with suppress(SiteError):  # tried again
        for run_id in ctx.runtime.known():
            if _is_over(ctx, run_id, in_use):
                ctx.runtime.forget(run_id)
    return False


def _is_over(ctx: Context, run_id: str, in_use: set[str]) -> bool:
    """Whether the run is booked or never had a machine, and no other attempt has its machine."""
    try:
        with ctx.installation.store.read() as tx:
            run = tx.run(run_id)
    except (NotFoundError, RowError):
        return False
    booked = run.billed_to_ms is not None or (run.state == "ended" and not run.instance_ids)
    return run.end is not None and booked and in_use.isdisjoint(run.instance_ids)
