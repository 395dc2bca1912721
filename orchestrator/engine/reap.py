"""Reap: end every instance that no living run needs, and close the books of those that ended.

Two sources: runs that have ended but whose instance is not confirmed gone (after a move, a finish, an abort, a
cancellation), and instances that carry our install's tag but belong to no living run (a lost reply, a crash between a
launch and its record). Must not know: why a run ended.
"""

from __future__ import annotations

from orchestrator.engine.accrue import settle
from orchestrator.engine.context import Context
from orchestrator.model import Run
from providers.errors import ProviderError

TERMINATE_EVERY_S = 2.0
SWEEP_EVERY_S = 5.0


def reap(ctx: Context) -> bool:
    """End what is left over. Returns whether anything changed."""
    changed = False
    for run in ctx.work.runs:
        if run.end is not None:
            changed |= _close(ctx, run)
    if ctx.due("sweep", SWEEP_EVERY_S):
        changed |= sweep(ctx)
    return changed


def _close(ctx: Context, run: Run) -> bool:
    if run.instance_id is None:
        return False  # nothing was rented, or the sweep will find it
    instance = ctx.instances.get(run.instance_id)
    if instance is None or instance.alive:
        if not ctx.due(f"terminate/{run.instance_id}", TERMINATE_EVERY_S):
            return False
        try:
            provider = ctx.provider(run.offer_id)
            provider.terminate(run.instance_id)
            described = list(provider.describe([run.instance_id]))
        except (ProviderError, KeyError):
            return False  # asked again
        if not described:
            # forgotten by its provider: gone, and billed at most until now
            return settle(ctx.world, ctx.leadership, run, run.billed_from_ms, ctx.now_ms)
        instance = described[0]
        ctx.instances[run.instance_id] = instance
    if instance.alive:
        return False
    return settle(ctx.world, ctx.leadership, run, instance.billed_from_ms, instance.billed_to_ms)


def sweep(ctx: Context) -> bool:
    """Instances of this install that no run accounts for: adopted by the run that their tag names, so that their cost
    is booked, then ended like any other; without such a run ended at once."""
    changed = False
    for provider in ctx.world.providers.values():
        try:
            owned = provider.list_owned(ctx.world.store.install_id)
        except ProviderError:
            continue
        with ctx.world.store.read() as tx:
            runs = {run.id: run for run in tx.runs()}
        known = {run.instance_id for run in runs.values()}
        for instance in owned:
            if instance.id in known:
                continue
            run = runs.get(instance.tags.get("tradewind-run", ""))
            if run is not None and run.end is None:
                continue  # its migration is about to ask again with the same token
            changed = True
            if run is not None and run.instance_id is None:
                with ctx.write() as tx:
                    tx.update_run(
                        run.id,
                        instance_id=instance.id,
                        billed_from_ms=instance.billed_from_ms,
                        billed_to_ms=None,
                    )
                    job = tx.job(run.job_id)
                    ctx.event(
                        tx,
                        "instance.adopted",
                        f"{instance.id} was left over: it is being ended",
                        job,
                        run=run,
                    )
            else:
                provider.terminate(instance.id)
    return changed
