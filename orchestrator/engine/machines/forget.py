"""Forget: removes orders and reports of machines that have ended and are booked.

It forgets only runs that are booked according to the store, so a control plane that was paused for long does not harm
runs that began meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from orchestrator.engine.context import Context
from orchestrator.engine.orders import PLACE
from orchestrator.engine.runtime import Runtime
from orchestrator.errors import NotFoundError, RowError, SiteError
from providers.errors import ProviderError

FORGET_EVERY_S = 60.0


def forget_machines(ctx: Context) -> bool:
    """Delete the control objects of runs that are over. Returns False: no row of the store changes."""
    with suppress(SiteError, ProviderError):  # tried again; a call that times out raises TimedOutError
        if (forgotten := ctx.answer("forget")) is not None:
            forgotten.result()
        answer = ctx.ask("known", PLACE, ctx.runtime.known, every_s=FORGET_EVERY_S)
        if answer is not None:
            in_use = {instance_id for run in ctx.work.runs for instance_id in run.instance_ids}
            unsettled = {run.id for run in ctx.work.runs}
            over = [name for name in answer.result() if name not in unsettled and _is_over(ctx, name, in_use)]
            if over and ctx.may_ask("forget", PLACE):
                ctx.begin("forget", PLACE, partial(_forget, ctx.runtime, over))
    return False


def _forget(runtime: Runtime, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        with suppress(SiteError):  # tried again; perhaps only one object is damaged
            runtime.forget(run_id)


def _is_over(ctx: Context, run_id: str, in_use: set[str]) -> bool:
    """Whether the run is booked or never had a machine, and no other attempt has its machine."""
    try:
        with ctx.installation.store.read() as tx:
            run = tx.run(run_id)
    except (NotFoundError, RowError):
        return False
    booked = run.billed_to_ms is not None or (run.state == "ended" and not run.instance_ids)
    return run.end is not None and booked and in_use.isdisjoint(run.instance_ids)
