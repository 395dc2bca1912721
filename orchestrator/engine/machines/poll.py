"""PollOutcome: what providers say of those that runs have, and the dead man's switch of those that runs want.

Each region is described in one call, as often as its provider's limits bear, and more often while something is expected
there. A machine is gone when its provider says so, or leaves it out of two looks that are its listing lag apart and
then twice finds nothing under its token either: one answer that does not mention it proves nothing. Every machine ends
by itself unless it is renewed, and only what a living run wants is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from orchestrator.engine.compartment import Compartment, contained, strike
from orchestrator.engine.context import Context
from orchestrator.model import Run
from providers.base import Provider
from providers.errors import ProviderError
from providers.instance import Instance, InstanceState
from providers.offer import provider_of, region_of

EXPECTING = 1 / 5
"""Of a provider's interval between two looks at a region: the interval while something is expected there."""
RENEW_AFTER = 1 / 12
"""Of the time to live: after so much of it, it begins anew. So a machine outlives its last control plane by at least
eleven twelfths of it."""
RENEW_RETRY_S = 5.0
DAY_MS = 86_400_000
LONGEST_BILL_MS = 400 * DAY_MS
_SUSPICIOUS = ("absent", "silent", "fenced")


def describe(ctx: Context) -> None:
    """Bring `ctx.instances` up to date. A provider that does not answer leaves the last word standing."""
    wanted = {run.instance_id for run in ctx.work.runs}
    ctx.instances = {key: value for key, value in ctx.instances.items() if key in wanted}
    for provider, region, runs in _regions(ctx, [run for run in ctx.work.runs if not ctx.gone(run)]):
        every_s = provider.describe_every_s * (EXPECTING if any(_expects(ctx, run) for run in runs) else 1)
        if ctx.due(f"describe:{provider.name}:{region}", every_s):
            look = partial(_look, ctx, provider, runs)
            contained(ctx, Compartment.DESCRIBE, look, None, about=f"{provider.name} {region}")


def renew(ctx: Context) -> None:
    """Let the time to live of every machine that a living run has begin anew, where a part of it is over."""
    now_s, to_live_s = ctx.installation.clock.monotonic_s(), ctx.installation.config.limits.max_unattended_s
    wanted = [run for run in ctx.work.runs if run.end is None and not ctx.gone(run)]
    for provider, region, runs in _regions(ctx, wanted):
        ids = [run.instance_id for run in runs if run.instance_id is not None]
        renewed_s = min(ctx.pacing.get(f"renewed/{instance_id}", -math.inf) for instance_id in ids)
        if now_s - renewed_s < to_live_s * RENEW_AFTER:
            continue
        if ctx.due(f"renew:{provider.name}:{region}", RENEW_RETRY_S):
            renewed = contained(
                ctx, Compartment.RENEW, partial(_renew, ctx, provider, ids), False, about=f"{provider.name} {region}"
            )
            if renewed:
                ctx.pacing |= {f"renewed/{instance_id}": now_s for instance_id in ids}


def _renew(ctx: Context, provider: Provider, ids: Sequence[str]) -> bool:
    try:
        provider.renew(
            ids, max(1, int(ctx.installation.config.limits.max_unattended_s * ctx.installation.clock.factor))
        )
    except ProviderError:
        return False  # asked again soon
    return True


def _regions(ctx: Context, runs: Sequence[Run]) -> Iterator[tuple[Provider, str, list[Run]]]:
    """These runs' machines by provider and region, as far as the provider is still enabled."""
    regions: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.instance_id is not None:
            regions.setdefault((provider_of(run.offer_id), region_of(run.offer_id)), []).append(run)
    for (name, region), there in regions.items():
        if (provider := ctx.installation.providers.get(name)) is not None:
            yield provider, region, there


def _expects(ctx: Context, run: Run) -> bool:
    """Whether the machine is about to change: it comes up, was asked to end or is to be taken, or nothing is heard."""
    instance, report = ctx.instance(run), ctx.reports.get(run.id)
    return (
        instance is None
        or instance.state is not InstanceState.RUNNING
        or instance.notice_deadline_ms is not None
        or run.end is not None
        or _absent(run.instance_id) in ctx.pacing
        or (report is not None and report.state in _SUSPICIOUS)
    )


def _look(ctx: Context, provider: Provider, runs: Sequence[Run]) -> None:
    asked_ms = ctx.now_ms
    try:
        described = {each.id: each for each in provider.describe([run.instance_id for run in runs if run.instance_id])}
        for run in runs:
            assert run.instance_id is not None
            instance = described.get(run.instance_id)
            if instance is None and _long_absent(ctx, provider, run.instance_id, asked_ms):
                instance = _looked_up(provider, run, _tokens(ctx, run))
                if instance is None and _not_found(run.instance_id) in ctx.pacing:
                    ctx.instances[run.instance_id] = None
                ctx.pacing[_not_found(run.instance_id)] = ctx.installation.clock.monotonic_s()
            if instance is not None:
                _believe(ctx, provider, instance, asked_ms)
    except ProviderError:
        return


def _believe(ctx: Context, provider: Provider, instance: Instance, asked_ms: int) -> None:
    if (wrong := _impossible(instance, asked_ms)) is not None:  # its last word stands
        strike(ctx, Compartment.DESCRIBE, ValueError(wrong), None, f"{provider.name} {instance.id}")
        return
    ctx.instances[instance.id] = instance
    for remembered in (_absent(instance.id), _not_found(instance.id)):
        ctx.pacing.pop(remembered, None)


def _long_absent(ctx: Context, provider: Provider, instance_id: str, asked_ms: int) -> bool:
    absent_ms = asked_ms - ctx.pacing.setdefault(_absent(instance_id), asked_ms)
    return absent_ms > 0 and absent_ms >= provider.listing_lag_s * 1000


def _tokens(ctx: Context, run: Run) -> list[str]:
    """The tokens of the launches that were made for a run, or for those that had its machine before."""
    with ctx.installation.store.read() as tx:
        runs = tx.runs(job_id=run.job_id, unreadable=lambda *_: None)
        moves = tx.migrations(job_id=run.job_id, unreadable=lambda *_: None)
    had_it = {run.id, *(each.id for each in runs if each.instance_id == run.instance_id)}
    return [move.token for move in moves if move.target_run_id in had_it and move.attempt > 0]


def _looked_up(provider: Provider, run: Run, tokens: Sequence[str]) -> Instance | None:
    """What another question than that for its id says of a machine: it may live, or have ended and when."""
    found = (each for token in tokens for each in provider.find(token, region_of(run.offer_id)))
    return next((each for each in found if each.id == run.instance_id), None)


def _impossible(instance: Instance, now_ms: int) -> str | None:
    """What a provider says of a bill that cannot be: nobody books by it. None: nothing."""
    for name in ("billed_from_ms", "billed_to_ms"):
        at_ms = getattr(instance, name)
        if at_ms is None:
            continue
        if type(at_ms) is not int or not now_ms - LONGEST_BILL_MS <= at_ms <= now_ms + DAY_MS:
            return f"{name} is {at_ms!r}, and it is {now_ms} now"
    begin_ms, end_ms = instance.billed_from_ms, instance.billed_to_ms
    if begin_ms is not None and end_ms is not None and end_ms < begin_ms:
        return f"it is billed from {begin_ms} to {end_ms}"
    return None


def _absent(instance_id: str | None) -> str:
    """Remembers the market instant of the first look that left the machine out."""
    return f"absent/{instance_id}"


def _not_found(instance_id: str) -> str:
    """Remembers that a look found nothing under its token."""
    return f"not-found/{instance_id}"
