"""Poll: asks providers about the machines that runs have, and renews the time to live of those that runs still need.

Each region is described in one call, as often as the provider's limits allow, and more often while a change is
expected. A machine counts as gone when its provider says so, or leaves it out of two answers at least its listing lag
apart and then twice finds nothing under its token either: one missing answer proves nothing. Every machine ends by
itself unless it is renewed, and only machines of living runs are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from orchestrator.engine.compartment import Compartment, contained, strike
from orchestrator.engine.context import Context
from orchestrator.engine.machines.launched import launch_tokens
from orchestrator.model import Run
from providers.base import Provider
from providers.errors import ProviderError
from providers.instance import Instance, InstanceState
from providers.offer import provider_of, region_of

EXPECTING = 1 / 5
"""The interval between two looks at a region while a change is expected, as a share of the usual one."""
RENEW_AFTER = 1 / 12
"""A machine is renewed after this share of its time to live. So it outlives its last control plane by at least eleven
twelfths of that time."""
RENEW_RETRY_S = 5.0
DAY_MS = 86_400_000
LONGEST_BILL_MS = 400 * DAY_MS
_SUSPICIOUS = ("absent", "silent", "fenced")


def describe(ctx: Context) -> None:
    """Update `ctx.instances`. If a provider does not answer, its last answer stays."""
    wanted = {instance_id for run in ctx.work.runs for instance_id in run.instance_ids}
    ctx.instances = {key: value for key, value in ctx.instances.items() if key in wanted}
    for provider, region, runs in _regions(ctx, [run for run in ctx.work.runs if not ctx.gone(run)]):
        every_s = provider.describe_every_s * (EXPECTING if any(_expects(ctx, run) for run in runs) else 1)
        if ctx.due(f"describe:{provider.name}:{region}", every_s):
            look = partial(_look, ctx, provider, runs)
            contained(ctx, Compartment.DESCRIBE, look, None, about=f"{provider.name} {region}")


def renew(ctx: Context) -> None:
    """Renew the time to live of machines of living runs once RENEW_AFTER of it has passed."""
    now_s, to_live_s = ctx.installation.clock.monotonic_s(), ctx.installation.config.limits.max_unattended_s
    wanted = [run for run in ctx.work.runs if run.end is None and not ctx.gone(run)]
    for provider, region, runs in _regions(ctx, wanted):
        ids = [each for run in runs for each in run.instance_ids if not ctx.is_gone(each)]
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
    """These runs' machines by provider and region; providers that are not enabled are left out."""
    regions: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.instance_id is not None:
            regions.setdefault((provider_of(run.offer_id), region_of(run.offer_id)), []).append(run)
    for (name, region), there in regions.items():
        if (provider := ctx.installation.providers.get(name)) is not None:
            yield provider, region, there


def _expects(ctx: Context, run: Run) -> bool:
    """Whether a change is expected: it is starting or ending, was given notice, or does not answer."""
    instance, report = ctx.instance(run), ctx.reports.get(run.id)
    return (
        instance is None
        or instance.state is not InstanceState.RUNNING
        or instance.notice_deadline_ms is not None
        or run.end is not None
        or any(_absent(each) in ctx.pacing for each in run.instance_ids)
        or (report is not None and report.state in _SUSPICIOUS)
    )


def _look(ctx: Context, provider: Provider, runs: Sequence[Run]) -> None:
    asked_ms = ctx.now_ms
    try:
        machines = [(run, each) for run in runs for each in run.instance_ids if not ctx.is_gone(each)]
        described = {each.id: each for each in provider.describe([instance_id for _, instance_id in machines])}
        for run, instance_id in machines:
            instance = described.get(instance_id)
            if instance is None and _long_absent(ctx, provider, instance_id, asked_ms):
                instance = _looked_up(provider, run, instance_id, _tokens(ctx, run))
                if instance is None and _not_found(instance_id) in ctx.pacing:
                    ctx.instances[instance_id] = None
                ctx.pacing[_not_found(instance_id)] = ctx.installation.clock.monotonic_s()
            if instance is not None:
                _accept(ctx, provider, instance, asked_ms)
    except ProviderError:
        return


def _accept(ctx: Context, provider: Provider, instance: Instance, asked_ms: int) -> None:
    if (wrong := impossible(instance, asked_ms)) is not None:  # its last valid answer stays
        strike(ctx, Compartment.DESCRIBE, ValueError(wrong), None, f"{provider.name} {instance.id}")
        return
    ctx.instances[instance.id] = instance
    for remembered in (_absent(instance.id), _not_found(instance.id)):
        ctx.pacing.pop(remembered, None)


def _long_absent(ctx: Context, provider: Provider, instance_id: str, asked_ms: int) -> bool:
    absent_ms = asked_ms - ctx.pacing.setdefault(_absent(instance_id), asked_ms)
    return absent_ms > 0 and absent_ms >= provider.listing_lag_s * 1000


def _tokens(ctx: Context, run: Run) -> list[str]:
    """The launch tokens of a run and of earlier runs on its machine."""
    with ctx.installation.store.read() as tx:
        runs = tx.runs(job_id=run.job_id, unreadable=lambda *_: None)
        moves = tx.migrations(job_id=run.job_id, unreadable=lambda *_: None)
    return launch_tokens(run, runs, moves)


def _looked_up(provider: Provider, run: Run, instance_id: str, tokens: Sequence[str]) -> Instance | None:
    """Look a machine up by its launch token instead of its id. It may be running or have ended."""
    found = (each for token in tokens for each in provider.find(token, region_of(run.offer_id)))
    return next((each for each in found if each.id == instance_id), None)


def impossible(instance: Instance, now_ms: int) -> str | None:
    """What is impossible about a reported billing interval, so that it is not used; None if nothing is."""
    for name in ("billed_from_ms", "billed_to_ms"):
        at_ms = getattr(instance, name)
        if at_ms is None:
            continue
        if type(at_ms) is not int or not now_ms - LONGEST_BILL_MS <= at_ms <= now_ms + DAY_MS:
            return f"{name} is {at_ms!r}, but the time is {now_ms}"
    begin_ms, end_ms = instance.billed_from_ms, instance.billed_to_ms
    if begin_ms is not None and end_ms is not None and end_ms < begin_ms:
        return f"it is billed from {begin_ms} to {end_ms}"
    return None


def _absent(instance_id: str) -> str:
    """The key for the market time of the first answer without this machine."""
    return f"absent/{instance_id}"


def _not_found(instance_id: str) -> str:
    """The key that remembers that nothing was found under its token."""
    return f"not-found/{instance_id}"
