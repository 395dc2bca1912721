"""Reap: ends every machine that no living run needs, and closes the books of those that have ended.

There are three sources: ended runs whose machine is not confirmed gone (after a move, a finish, an abort, a
cancellation), runs that were aborted before the answer to their launch was known, and what engine.machines.sweep finds.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from orchestrator.engine.billing.accrue import as_described, meter, settle
from orchestrator.engine.calls import place_of
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.engine.machines.collect import poll_prices
from orchestrator.engine.machines.launched import launch_key
from orchestrator.engine.machines.sweep import adopt, gone_key, sweep
from orchestrator.errors import SiteError
from orchestrator.model import Run
from providers.base import Landed
from providers.errors import ProviderError
from providers.offer import provider_of, region_of
from providers.traits import shares_host

TERMINATE_EVERY_S = 2.0
SETTLE_EVERY_S = 1.0
ASK_EVERY_S = 5.0
LATE_S = 60.0  # wall: a launch may take effect this long after it was sent, by a control plane that may be dead by then
PARTING_S = 15.0
SHIPS_LATE = ("cancelled", "moved")
"""How a run ended, if its machine may still be storing the end of its log and outputs."""


def reap(ctx: Context) -> bool:
    """End all machines that are no longer needed. Returns whether anything changed."""
    changed = False
    for run in ctx.work.runs:
        if run.end is not None:
            changed |= _close(ctx, run)
    return changed | sweep(ctx)


def _close(ctx: Context, run: Run) -> bool:
    """End a run's machines, then close its books, once its machines are known. Ending them does not depend on anything
    that could fail."""
    unknown = run.state != "ended" and not run.complete
    if unknown and contained(ctx, Compartment.TERMINATE, partial(_find_out, ctx, run), False, job_id=run.job_id):
        return True
    if run.instance_id is None:
        return False
    terminated = contained(ctx, Compartment.TERMINATE, partial(_terminate, ctx, run), False, job_id=run.job_id)
    if unknown or not terminated:
        return False
    return contained(ctx, Compartment.SETTLE, partial(_close_books, ctx, run), False, job_id=run.job_id)


def _terminate(ctx: Context, run: Run) -> bool:
    """Request the end of its machines, repeatedly. Returns whether all are confirmed gone."""
    if ctx.gone(run):
        return True
    if ctx.due(f"kill/{run.id}", TERMINATE_EVERY_S):
        contained(ctx, Compartment.KILL, partial(_kill, ctx, run), None, job_id=run.job_id)
    if contained(ctx, Compartment.KILL, partial(_still_ships, ctx, run), False, job_id=run.job_id):
        return False
    for instance_id in run.instance_ids:
        if not ctx.is_gone(instance_id):
            with suppress(ProviderError, KeyError):  # asked again
                end = partial(ctx.provider(run.offer_id).terminate, instance_id)
                answer = ctx.ask(f"terminate/{instance_id}", place_of(run.offer_id), end, every_s=TERMINATE_EVERY_S)
                if answer is not None:
                    answer.result()
    return False  # engine.machines.poll confirms their end


def _kill(ctx: Context, run: Run) -> None:
    """Kill the trainer: it must not keep training if its provider does not answer for a while."""
    with suppress(SiteError):
        ctx.runtime.kill(run.id)
        ctx.lease_runs_out(run)


def _still_ships(ctx: Context, run: Run) -> bool:
    """Whether a machine of another host is still storing the end of the log and outputs, for PARTING_S at most. False
    if a spending limit ended the run, or if the run ended by itself: then it has already stored them."""
    if run.end not in SHIPS_LATE or shares_host(run.offer_id):
        return False
    if ctx.waited_s(f"parting/{run.id}") > PARTING_S:
        return False
    try:
        return not ctx.runtime.parted(run.id)
    except SiteError:
        return True


def _close_books(ctx: Context, run: Run) -> bool:
    if not _metered(ctx, run):
        return False
    if _settle(ctx, run):
        return True
    provider = ctx.installation.providers.get(provider_of(run.offer_id))
    if provider is None:
        return False
    poll = partial(poll_prices, ctx, provider, SETTLE_EVERY_S)
    if contained(ctx, Compartment.COLLECT, poll, None, about=provider.name) is None:
        return False
    return _settle(ctx, run)  # its last prices were not known yet


def _metered(ctx: Context, run: Run) -> bool:
    """Whether the provider knows the run's usage."""
    known, report_usage = f"metered/{run.id}", meter(ctx.installation, run)
    if report_usage is None or known in ctx.pacing:
        return True
    answer = ctx.ask(f"meter/{run.id}", place_of(run.offer_id), report_usage, every_s=SETTLE_EVERY_S)
    if answer is None:
        return False
    try:
        answer.result()
    except ProviderError:
        return False  # asked again
    ctx.pacing[known] = answer.asked_s
    return True


def _find_out(ctx: Context, run: Run) -> bool:
    """Find out which machines exist for a run that was aborted during its launch. Returns whether anything new was
    found.

    The launch may still be answered. Otherwise the machine is looked up by its token, also among ended machines,
    because they cost money as well. No machine exists if two look-ups find nothing, both at least LATE_S and the
    provider's listing lag after the abort, and so after the last launch. `sweep` finds a machine that appears even
    later.
    """
    with ctx.installation.store.read() as tx:
        (migration,) = (each for each in tx.migrations(job_id=run.job_id) if each.target_run_id == run.id)
    launched = ctx.answer(launch_key(migration))
    if launched is not None and launched.error is None:
        landed = launched.result()
        fresh = tuple(each for each in landed.instance_ids if each not in run.instance_ids)
        adopt(ctx, run, migration.token, replace(landed, instance_ids=fresh))
        return True
    if ctx.calls.under_way(launch_key(migration)):
        return False
    try:
        provider = ctx.provider(run.offer_id)
        look = partial(provider.find, migration.token, region_of(run.offer_id))
        answer = ctx.ask(f"find-out/{run.id}", place_of(run.offer_id), look, every_s=ASK_EVERY_S)
        found = None if answer is None else answer.result()
    except (ProviderError, KeyError):
        return False  # asked again
    if answer is None or found is None:
        return False
    if others := [each for each in found if each.id not in run.instance_ids]:
        others.sort(key=lambda each: (not each.alive, each.billed_from_ms is None))  # what costs money comes first
        fresh = tuple(each.id for each in others if each.offer_id == others[0].offer_id)
        adopt(ctx, run, migration.token, Landed(others[0].offer_id, fresh))
        return True
    late_s = LATE_S * ctx.installation.clock.factor + provider.listing_lag_s
    if answer.asked_ms <= migration.step_at_ms + late_s * 1000:
        return False
    if (once := f"not-found/{run.id}") not in ctx.pacing:
        ctx.pacing[once] = answer.asked_s
        return False
    with ctx.write() as tx:
        tx.update_run(run.id, state="ended")
    return True


def _settle(ctx: Context, run: Run) -> bool:
    factor = ctx.installation.clock.factor
    gone_ms = ctx.now_ms - round(ctx.waited_s(gone_key(run.id)) * 1000 * factor)
    ended = [
        as_described(run, each, ctx.instances.get(each.instance_id or ""), gone_ms, factor) for each in run.machines
    ]
    return settle(ctx.installation, ctx.leadership, run, ended)
