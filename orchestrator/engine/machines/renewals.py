"""Renewals: every machine ends by itself unless it is renewed, and only machines of living runs are renewed.

A machine lives on without a control plane for `limits.max_unattended_s`, but not longer than the budgets of its job and
of its project cover: so a budget is not exceeded while the control plane is stopped, or while its host sleeps. Before
another machine is launched, the other machines that the same budget pays for get shorter times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from orchestrator.engine.billing.project_budget import budget_of, project_spending
from orchestrator.engine.billing.spending_limits import Spending, spending
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context, may_live
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.inputs.reserves import LOOK_EVERY_S, release_market_s
from orchestrator.model import Job, Run
from providers.base import Provider
from providers.errors import ProviderError
from providers.offer import provider_of, region_of

RENEW_AFTER = 1 / 12
"""A machine is renewed after this share of its time to live. So without a control plane, it lives on for at least
eleven twelfths of that time."""
RENEW_COVERED_AFTER = 1 / 4
"""The same if a budget covers less than `limits.max_unattended_s`. Each of these calls is for the machines of one job
only, and clouds limit the calls per second."""
RENEW_RETRY_S = 5.0


def renew(ctx: Context) -> None:
    """Renew the time to live of machines of living runs once a part of it has passed, or shorten it if a budget
    no longer covers it."""
    by_job = ctx.work.runs_by_job()
    limited = {job_id for job_id in by_job if _has_budget(ctx, ctx.work.jobs.get(job_id))}
    others = [run for run in ctx.work.runs if run.job_id not in limited and run.end is None and not ctx.gone(run)]
    _renew(ctx, others, ctx.installation.config.limits.max_unattended_s)
    projects: dict[str, Spending] = {}
    for job_id in sorted(limited):
        runs = [run for run in by_job[job_id] if not ctx.gone(run)]
        step = partial(_renew_covered, ctx, ctx.work.jobs[job_id], runs, projects)
        contained(ctx, Compartment.RENEW, step, None, job_id=job_id)


def _has_budget(ctx: Context, job: Job | None) -> bool:
    return job is not None and (job.spec.budget_nano_usd is not None or budget_of(ctx, job.project) is not None)


def _renew_covered(ctx: Context, job: Job, runs: Sequence[Run], projects: dict[str, Spending]) -> None:
    """Renew the machines of a job for as long as its budgets cover. Machines that are being ended are not renewed, but
    get a shorter time if the budgets no longer cover theirs."""
    if not any(run.instance_id is not None for run in runs) or not ctx.due(f"covered/{job.id}", LOOK_EVERY_S):
        return
    living = [run for run in runs if run.end is None]
    to_live_s = covered_s(ctx, job, living, projects)
    if to_live_s > _floor_s(ctx) or not any(ctx.unheard(run) for run in runs):
        _renew(ctx, living, to_live_s, f"/{job.id}")
    _shorten(ctx, [run for run in runs if run.end is not None], to_live_s, f"/{job.id}")


def covered_s(ctx: Context, job: Job, runs: Sequence[Run], projects: dict[str, Spending]) -> float:
    """Wall seconds for which the machines of a job may live on. `projects` has the results for projects in this
    pass."""
    factor = ctx.installation.clock.factor
    covered_s = ctx.installation.config.limits.max_unattended_s * factor
    if (budget := job.spec.budget_nano_usd) is not None:
        covered_s = min(covered_s, spending(ctx, job, snapshot.current_run(runs)).lasts_s(budget))
    if budget_of(ctx, job.project) is not None:
        covered_s = min(covered_s, _project_lasts_s(ctx, job.project, projects))
    return max(covered_s / factor, _floor_s(ctx))


def _project_lasts_s(ctx: Context, project: str, projects: dict[str, Spending]) -> float:
    whole = budget_of(ctx, project)
    assert whole is not None
    if project not in projects:
        with ctx.installation.store.read() as tx:
            projects[project] = project_spending(ctx, tx, project, whole)
    return projects[project].lasts_s(whole)


def _floor_s(ctx: Context) -> float:
    """Wall seconds that are always covered, because this much is reserved to end the machines. Before that, a working
    control plane ends them itself."""
    factor = ctx.installation.clock.factor
    return release_market_s(factor) / factor


def others_outlive(ctx: Context, job: Job, target: Run) -> bool:
    """Whether another machine may live, without a control plane, for longer than a budget covers it and the machines
    of `target`, which are about to be launched. `renew` gives it a shorter time first."""
    factor, floor_s = ctx.installation.clock.factor, _floor_s(ctx)
    own = [run for run in ctx.work.runs if run.job_id == job.id]
    limits: list[tuple[Sequence[Run], float]] = []
    if (budget := job.spec.budget_nano_usd) is not None:
        current = snapshot.current_run([run for run in own if run.end is None])
        limits.append((own, spending(ctx, job, current).lasts_s(budget)))
    if budget_of(ctx, job.project) is not None:
        limits.append((ctx.work.runs_of_project(job.project), _project_lasts_s(ctx, job.project, {})))
    return any(
        _longest_s(ctx, [run for run in runs if run.id != target.id and run.billed_to_ms is None])
        > max(lasts_s / factor, floor_s) + LOOK_EVERY_S
        for runs, lasts_s in limits
        if lasts_s < math.inf
    )


def _longest_s(ctx: Context, runs: Sequence[Run]) -> float:
    """Wall seconds for which one of the machines of these runs may live without a control plane; infinite if that is
    not known. A launch that was not answered counts with its time to live."""
    now_s = ctx.installation.clock.monotonic_s()
    found = [
        ctx.pacing.get(may_live(instance_id), math.inf) - now_s
        for _, _, there in regions(ctx, runs)
        for run in there
        for instance_id in run.instance_ids
        if not ctx.is_gone(instance_id)
    ]
    targets = {run.id for run in runs if not run.complete}
    for move in ctx.work.migrations:
        if move.target_run_id in targets and move.attempt > 0 and move.to_live_s is not None:
            found.append(move.to_live_s / ctx.installation.clock.factor)
    return max(found, default=0.0)


def _renew(ctx: Context, runs: Sequence[Run], to_live_s: float, of: str = "") -> None:
    """Renew machines that may live for `to_live_s` wall seconds. `of` tells the calls for them from others."""
    now_s = ctx.installation.clock.monotonic_s()
    short = to_live_s < ctx.installation.config.limits.max_unattended_s
    passed = RENEW_COVERED_AFTER if short else RENEW_AFTER
    for provider, region, there in regions(ctx, runs):
        ids = [each for run in there for each in run.instance_ids if not ctx.is_gone(each)]
        left_s = [ctx.pacing.get(_lives(instance_id), -math.inf) - now_s for instance_id in ids]
        longest_s = max(ctx.pacing.get(may_live(instance_id), math.inf) - now_s for instance_id in ids)
        if min(left_s) <= to_live_s * (1 - passed) or longest_s > to_live_s + LOOK_EVERY_S:
            step = partial(_renew_there, ctx, provider, region, ids, to_live_s, of)
            contained(ctx, Compartment.RENEW, step, None, about=f"{provider.name} {region}")


def _shorten(ctx: Context, runs: Sequence[Run], to_live_s: float, of: str) -> None:
    """Give machines that may live for longer than `to_live_s` wall seconds this time."""
    now_s = ctx.installation.clock.monotonic_s()
    for provider, region, there in regions(ctx, runs):
        ids = [each for run in there for each in run.instance_ids if not ctx.is_gone(each)]
        longer = [each for each in ids if ctx.pacing.get(may_live(each), math.inf) - now_s > to_live_s + LOOK_EVERY_S]
        if longer:
            step = partial(_renew_there, ctx, provider, region, longer, to_live_s, of, what="shorten")
            contained(ctx, Compartment.RENEW, step, None, about=f"{provider.name} {region}")


def _renew_there(
    ctx: Context,
    provider: Provider,
    region: str,
    ids: Sequence[str],
    to_live_s: float,
    of: str,
    *,
    what: str = "renew",
) -> None:
    market_s = max(1, int(to_live_s * ctx.installation.clock.factor))

    def renewed() -> tuple[Sequence[str], float]:
        provider.renew(ids, market_s)
        return ids, to_live_s

    key, every_s = f"{what}:{provider.name}:{region}{of}", min(RENEW_RETRY_S, to_live_s * RENEW_AFTER)
    answer, place = ctx.answer(key), (provider.name, region)
    if answer is None and ctx.may_ask(key, place, every_s):
        for instance_id in ids:  # it may take effect even if it is never answered
            may_live_until(ctx, instance_id, ctx.installation.clock.monotonic_s() + to_live_s)
        answer = ctx.begin(key, place, renewed)
    if answer is not None:
        with suppress(ProviderError):  # tried again soon
            renewed_ids, lives_s = answer.result()
            for instance_id in renewed_ids:
                if ctx.lived_until_ms(instance_id) is None:
                    ctx.pacing[_lives(instance_id)] = ctx.pacing[may_live(instance_id)] = answer.asked_s + lives_s


def may_live_until(ctx: Context, instance_id: str, at_s: float) -> None:
    """Remember that a machine, unless it has ended, may live until `at_s` (monotonic seconds) without another
    renewal."""
    if ctx.lived_until_ms(instance_id) is None:
        ctx.pacing[may_live(instance_id)] = max(at_s, ctx.pacing.get(may_live(instance_id), -math.inf))


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
    """The key for the monotonic time until which a machine certainly lives by itself."""
    return f"lives/{instance_id}"
