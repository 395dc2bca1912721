"""Renewals: every machine ends by itself unless it is renewed, and only machines of living runs are renewed.

A machine lives on without a control plane for `limits.max_unattended_s`, but not longer than the budgets of its job and
of its project cover: so a budget is not exceeded while the control plane is stopped, or while its host sleeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from orchestrator.engine.billing.project_budget import budget_of, project_spending
from orchestrator.engine.billing.spending_limits import Spending, spending
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.inputs.reserves import LOOK_EVERY_S, release_market_s
from orchestrator.model import Job, Run
from providers.base import Provider
from providers.errors import ProviderError
from providers.offer import provider_of, region_of

RENEW_AFTER = 1 / 12
"""A machine is renewed after this share of its time to live. So without a control plane, it lives on for at least
eleven twelfths of that time."""
RENEW_RETRY_S = 5.0


def renew(ctx: Context) -> None:
    """Renew the time to live of machines of living runs once RENEW_AFTER of it has passed, or shorten it if a budget
    no longer covers it."""
    living = [run for run in ctx.work.runs if run.end is None and not ctx.gone(run)]
    limited = {run.job_id for run in living if _has_budget(ctx, ctx.work.jobs.get(run.job_id))}
    _renew(ctx, [run for run in living if run.job_id not in limited], ctx.installation.config.limits.max_unattended_s)
    projects: dict[str, Spending] = {}
    for job_id in sorted(limited):
        runs = [run for run in living if run.job_id == job_id]
        step = partial(_renew_covered, ctx, ctx.work.jobs[job_id], runs, projects)
        contained(ctx, Compartment.RENEW, step, None, job_id=job_id)


def _has_budget(ctx: Context, job: Job | None) -> bool:
    return job is not None and (job.spec.budget_nano_usd is not None or budget_of(ctx, job.project) is not None)


def _renew_covered(ctx: Context, job: Job, runs: Sequence[Run], projects: dict[str, Spending]) -> None:
    """Renew the machines of a job for as long as its budgets cover."""
    if any(run.instance_id is not None for run in runs) and ctx.due(f"covered/{job.id}", LOOK_EVERY_S):
        _renew(ctx, runs, covered_s(ctx, job, runs, projects), f"/{job.id}")


def covered_s(ctx: Context, job: Job, runs: Sequence[Run], projects: dict[str, Spending]) -> float:
    """Wall seconds for which the machines of a job may live on. `projects` has the results for projects in this
    pass."""
    factor = ctx.installation.clock.factor
    covered_s = ctx.installation.config.limits.max_unattended_s * factor
    if (budget := job.spec.budget_nano_usd) is not None:
        covered_s = min(covered_s, spending(ctx, job, snapshot.current_run(runs)).lasts_s(budget))
    if (whole := budget_of(ctx, job.project)) is not None:
        if job.project not in projects:
            with ctx.installation.store.read() as tx:
                projects[job.project] = project_spending(ctx, tx, job.project, whole)
        covered_s = min(covered_s, projects[job.project].lasts_s(whole))
    # What is reserved to end the machines covers this much. Before that, a working control plane ends them itself.
    return max(covered_s, release_market_s(factor)) / factor


def _renew(ctx: Context, runs: Sequence[Run], to_live_s: float, of: str = "") -> None:
    """Renew machines that may live for `to_live_s` wall seconds. `of` tells the calls for them from others."""
    now_s = ctx.installation.clock.monotonic_s()
    for provider, region, there in regions(ctx, runs):
        ids = [each for run in there for each in run.instance_ids if not ctx.is_gone(each)]
        left_s = [ctx.pacing.get(_lives(instance_id), -math.inf) - now_s for instance_id in ids]
        if min(left_s) <= to_live_s * (1 - RENEW_AFTER) or max(left_s) > to_live_s + LOOK_EVERY_S:
            step = partial(_renew_there, ctx, provider, region, ids, to_live_s, of)
            contained(ctx, Compartment.RENEW, step, None, about=f"{provider.name} {region}")


def _renew_there(ctx: Context, provider: Provider, region: str, ids: Sequence[str], to_live_s: float, of: str) -> None:
    market_s = max(1, int(to_live_s * ctx.installation.clock.factor))

    def renewed() -> tuple[Sequence[str], float]:
        provider.renew(ids, market_s)
        return ids, to_live_s

    key, every_s = f"renew:{provider.name}:{region}{of}", min(RENEW_RETRY_S, to_live_s * RENEW_AFTER)
    answer = ctx.ask(key, (provider.name, region), renewed, every_s=every_s)
    if answer is not None:
        with suppress(ProviderError):  # tried again soon
            renewed_ids, lives_s = answer.result()
            renewed_ids = [each for each in renewed_ids if ctx.lived_until_ms(each) is None]
            ctx.pacing |= {_lives(instance_id): answer.asked_s + lives_s for instance_id in renewed_ids}


def regions(ctx: Context, runs: Sequence[Run]) -> Iterator[tuple[Provider, str, list[Run]]]:
    """These runs' machines by provider and region; providers that are not enabled are left out."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.instance_id is not None:
            found.setdefault((provider_of(run.offer_id), region_of(run.offer_id)), []).append(run)
    for (name, region), there in found.items():
        if (provider := ctx.installation.providers.get(name)) is not None:
            yield provider, region, there


def _lives(instance_id: str) -> str:
    """The key for the monotonic time at which a machine ends unless it is renewed."""
    return f"lives/{instance_id}"
