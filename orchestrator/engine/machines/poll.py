"""Poll: queries providers about the machines of runs.

Each region is described in one call, as often as the provider's limits allow, and more often while a change is
expected; the answer is read when it arrives (engine.calls). A machine counts as gone when its provider reports that it
is gone, or when two answers, requested at least the provider's listing lag apart, do not list it and two look-ups by
its token then find nothing: one missing answer proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from orchestrator.engine.calls import Answer
from orchestrator.engine.compartment import Compartment, contained, strike
from orchestrator.engine.context import Context
from orchestrator.engine.machines.freed import machine_ended
from orchestrator.engine.machines.launched import launch_tokens
from orchestrator.engine.machines.renewals import regions
from orchestrator.model import Run
from providers.base import Provider
from providers.errors import ProviderError
from providers.instance import Instance, InstanceState

EXPECTING = 1 / 5
"""The interval between two polls of a region while a change is expected, as a share of the usual interval."""
ABREAST = 3
"""How many polls of a region may be under way, so that slow answers arrive as often as fast ones."""
DAY_MS = 86_400_000
LONGEST_BILL_MS = 400 * DAY_MS
_SUSPICIOUS = ("absent", "silent", "fenced")


def describe(ctx: Context) -> None:
    """Update `ctx.instances`. If a provider does not answer, its last answer remains valid."""
    wanted = {instance_id for run in ctx.work.runs for instance_id in run.instance_ids}
    ctx.instances = {key: value for key, value in ctx.instances.items() if key in wanted}
    for provider, region, runs in regions(ctx, [run for run in ctx.work.runs if not ctx.gone(run)]):
        look = partial(_look, ctx, provider, region, runs)
        contained(ctx, Compartment.DESCRIBE, look, None, about=f"{provider.name} {region}")


def _expects(ctx: Context, run: Run) -> bool:
    """Whether a change is expected: the machine is starting or ending, has a preemption notice, or does not answer."""
    instance, report = ctx.instance(run), ctx.reports.get(run.id)
    return (
        instance is None
        or instance.state is not InstanceState.RUNNING
        or instance.notice_deadline_ms is not None
        or run.end is not None
        or any(_absent(each) in ctx.pacing for each in run.instance_ids)
        or (report is not None and report.state in _SUSPICIOUS)
    )


def _look(ctx: Context, provider: Provider, region: str, runs: Sequence[Run]) -> None:
    every_s = provider.describe_every_s * (EXPECTING if any(_expects(ctx, run) for run in runs) else 1)
    machines = [(run, each) for run in runs for each in run.instance_ids if not ctx.is_gone(each)]
    ids = [instance_id for _, instance_id in machines]

    def described() -> Mapping[str, Instance | None]:
        found = {each.id: each for each in provider.describe(ids)}
        return {instance_id: found.get(instance_id) for instance_id in ids}

    key = f"describe:{provider.name}:{region}"
    answer = ctx.ask(key, (provider.name, region), described, every_s=every_s, abreast=ABREAST)
    if answer is not None:
        with suppress(ProviderError):  # asked again
            for instance_id, instance in answer.result().items():
                if instance is not None:
                    accept(ctx, provider, instance, answer)
                elif _long_absent(ctx, provider, instance_id, answer.asked_ms):
                    ctx.pacing.setdefault(_omitted(instance_id), answer.asked_s)
    for run, instance_id in machines:
        if _omitted(instance_id) in ctx.pacing:
            _look_up(ctx, provider, region, run, instance_id, every_s)


def _look_up(ctx: Context, provider: Provider, region: str, run: Run, instance_id: str, every_s: float) -> None:
    """Look a machine up by its launch token instead of its id. It may be running or have ended. It is gone if two
    look-ups find nothing."""
    key, place = f"look-up/{instance_id}", (provider.name, region)
    answer = ctx.answer(key)
    if answer is None and ctx.may_ask(key, place, every_s):
        tokens = _tokens(ctx, run)
        answer = ctx.begin(key, place, lambda: [each for token in tokens for each in provider.find(token, region)])
    if answer is None or answer.asked_s < ctx.pacing[_omitted(instance_id)]:
        return
    try:
        found = next((each for each in answer.result() if each.id == instance_id), None)
    except ProviderError:
        return  # asked again
    if found is not None:
        accept(ctx, provider, found, answer)
    elif _not_found(instance_id) in ctx.pacing:
        ctx.instances[instance_id], ctx.pacing[_seen(instance_id)] = None, answer.asked_s
        machine_ended(ctx, provider.name)
    else:
        ctx.pacing[_not_found(instance_id)] = answer.asked_s


def accept(ctx: Context, provider: Provider, instance: Instance, answer: Answer[Any]) -> None:
    """Use an answer about a machine, unless a later query was already answered."""
    if answer.asked_s < ctx.pacing.get(_seen(instance.id), -math.inf):
        return
    wrong = impossible(instance, answer.asked_ms, _requested_ms(ctx, instance.id))
    if wrong is not None:  # its last valid answer remains
        strike(ctx, Compartment.DESCRIBE, ValueError(wrong), None, f"{provider.name} {instance.id}")
        return
    if not instance.alive and not ctx.is_gone(instance.id):
        machine_ended(ctx, provider.name)
    ctx.instances[instance.id] = instance
    ctx.pacing[_seen(instance.id)] = answer.asked_s
    for remembered in (_absent(instance.id), _omitted(instance.id), _not_found(instance.id)):
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


def _requested_ms(ctx: Context, instance_id: str) -> int | None:
    """When a machine was requested (market time); None if that is not known here."""
    runs = [run for run in ctx.work.runs if instance_id in run.instance_ids]
    first = min(runs, key=lambda run: run.created_at_ms, default=None)
    return None if first is None or first.machine_from_ms is not None else first.created_at_ms


def impossible(instance: Instance, now_ms: int, requested_ms: int | None = None) -> str | None:
    """Why a machine's reported times are impossible, so that the answer is not used; None if they are possible. Clocks
    may differ by DAY_MS. `requested_ms`: when it was requested, if known."""
    for name in ("billed_from_ms", "billed_to_ms", "notice_deadline_ms"):
        at_ms = getattr(instance, name)
        if at_ms is None:
            continue
        if type(at_ms) is not int or not now_ms - LONGEST_BILL_MS <= at_ms <= now_ms + DAY_MS:
            return f"{name} is {at_ms!r}, but the time is {now_ms}"
    begin_ms, end_ms = instance.billed_from_ms, instance.billed_to_ms
    if begin_ms is None and instance.state is InstanceState.RUNNING:
        return "it is running, but billed from no time"
    if begin_ms is not None and requested_ms is not None and begin_ms < min(requested_ms, now_ms) - DAY_MS:
        return f"it is billed from {begin_ms}, but it was requested at {requested_ms}"
    if begin_ms is not None and end_ms is not None and end_ms < begin_ms:
        return f"it is billed from {begin_ms} to {end_ms}"
    return None


def _absent(instance_id: str) -> str:
    """The key for the market time of the first answer without this machine."""
    return f"absent/{instance_id}"


def _seen(instance_id: str) -> str:
    """The key for the monotonic time of the latest answered query about this machine."""
    return f"seen/{instance_id}"


def _omitted(instance_id: str) -> str:
    """The key for the monotonic time of the first query since which it has been absent for long."""
    return f"omitted/{instance_id}"


def _not_found(instance_id: str) -> str:
    """The key that remembers that a look-up by its token found nothing."""
    return f"not-found/{instance_id}"
