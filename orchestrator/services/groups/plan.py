"""Plans a group: all its jobs together, at current prices and quotas. Starts nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.engine.inputs.snapshot import Inputs, inputs, limits
from orchestrator.errors import InfeasibleError
from orchestrator.installation import Installation
from orchestrator.jobfile import refuse_unsupported_fields
from orchestrator.market import Market
from orchestrator.model import GroupPolicy, GroupSpec, Job, new_id
from orchestrator.policy.groups.course import Course, by_course, course, judged
from orchestrator.policy.groups.order import Order
from orchestrator.policy.groups.planning import Joint, joint
from orchestrator.policy.groups.quota_value import QuotaValue, quota_values
from orchestrator.policy.groups.remedies import Remedies, find_remedies
from orchestrator.policy.groups.spot_risk import refused_alone
from orchestrator.policy.needed_budget import needed_budgets
from orchestrator.policy.ranking.enough import Needed
from orchestrator.services.groups.budgets import asked_of, enough_together, parts, require_budgets
from orchestrator.services.groups.deadlines import with_deadline
from orchestrator.services.groups.question import question
from orchestrator.services.groups.relaxing import with_remedies
from orchestrator.services.groups.views import (
    GroupPlanView,
    PlacedElsewhere,
    PlannedJob,
    PlannedPart,
    UnitWorth,
    Without,
)
from orchestrator.services.groups.what_if import key_of, supposed
from orchestrator.services.jobs.cautions import cautions
from orchestrator.services.jobs.feasible import risk
from orchestrator.services.jobs.plan import freshen, planned, price_age_s
from orchestrator.services.jobs.project_money import short_projects
from orchestrator.services.jobs.room import Want, full_limits
from orchestrator.services.secrets.submission import missing_secrets
from providers.money import usd

LATE_MS = 1000
"""A job that ends this little after its deadline counts as on time, as estimates are rounded."""


def new_jobs(installation: Installation, group: GroupSpec, group_id: str | None = None) -> tuple[Job, ...]:
    """The group's jobs with new ids, in the order of the file, each with its earliest deadline; `after` refers to
    ids."""
    now = installation.clock.now_ms()
    fresh: set[str] = set()
    while len(fresh) < len(group.jobs):
        fresh.add(new_id("job", now, random.SystemRandom()))
    ids = dict(zip((each.spec.name for each in group.jobs), sorted(fresh), strict=True))  # in the order of the file
    return tuple(
        Job(
            ids[each.spec.name],
            with_deadline(each.spec, group, now),
            "",
            now,
            "queued",
            group_id,
            each.weight,
            tuple(ids[name] for name in each.after),
        )
        for each in group.jobs
    )


def plan_group(installation: Installation, group: GroupSpec, assumptions: Sequence[str] = ()) -> GroupPlanView:
    """The joint plan; with `assumptions` about quotas (services.groups.what_if), compared with the plan without them.

    Raises InfeasibleError, naming the conflicting jobs and limits and what relaxing them costs; LimitError if a budget
    is too small, with the smallest sufficient one; SpecError, UsageError.
    """
    make_ready(installation, group)
    jobs = new_jobs(installation, group)
    view = planned_group(installation, group, jobs, assumptions)
    specs = [each.spec for each in group.jobs]
    return replace(
        view,
        missing_secrets=missing_secrets(specs),
        cautions=cautions(specs),
        risk="" if assumptions else _risk(installation, with_parts(group, jobs, view)),
    )


def with_parts(group: GroupSpec, jobs: tuple[Job, ...], view: GroupPlanView) -> tuple[Job, ...]:
    """The `jobs` of the plan `view`, each with its part of the group's budget."""
    if group.budget_nano_usd is None:
        return jobs
    return tuple(
        replace(job, spec=replace(job.spec, budget_nano_usd=part))
        for job, part in zip(jobs, parts(group.budget_nano_usd, view.jobs), strict=True)
    )


def _risk(installation: Installation, jobs: Sequence[Job]) -> str:
    """What `submit --yes` refuses without `--accept-risk`."""
    if all(job.deadline_at_ms is None and job.spec.budget_nano_usd is None for job in jobs):
        return ""
    return risk(planned(installation, jobs, only=[job.id for job in jobs]))


def make_ready(installation: Installation, group: GroupSpec) -> None:
    """Check what cannot be checked from the file alone, and poll prices that are old. Raises SpecError."""
    for each in group.jobs:
        refuse_unsupported_fields(each.spec, each.spec.name)
    freshen(installation)


def planned_group(
    installation: Installation, group: GroupSpec, jobs: Sequence[Job], assumptions: Sequence[str] = ()
) -> GroupPlanView:
    """The same for jobs that already have ids; prices are not polled again."""
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        seen = inputs(tx, now, installation.config, extra=jobs, only=[job.id for job in jobs], together=True)
        age_s = price_age_s(installation, tx, now)
    market, after = supposed(seen.market, assumptions), {job.id: job.after for job in jobs}
    without = _without(installation, seen, group.policy, after, now) if assumptions else None
    try:
        found, unfolded = _solved(installation, seen, market, group.policy, after)
    except InfeasibleError as error:
        remedies = _remedies(installation, seen, market, group.policy)
        raise with_remedies(error, remedies, ordered=any(after.values())) from error
    bounds = limits(installation.config)
    valued = quota_values(
        seen.demands, market, seen.perf, group.policy, found, unfolded, seen.running, after, limits=bounds
    )
    needed = _needed(installation, seen, market, unfolded)
    names = {job.id: job.name for job in jobs}
    elsewhere = tuple(
        PlacedElsewhere(names[each.job_id], usd(f"{each.alone_usd:.9f}"))
        for each in refused_alone(seen.demands, market, seen.perf, unfolded, seen.running, limits=bounds)
    )
    view = _view(group, jobs, seen, found, unfolded, valued, needed, now, age_s)
    with installation.store.read() as tx:
        wants = [
            Want(job.project, part.offer_id, part.share * job.spec.resources.nodes)
            for job, planned in zip(jobs, view.jobs, strict=True)
            for part in planned.parts
            if not job.after
        ]
        view = replace(
            view,
            short_projects=short_projects(installation, tx, {group.project: view.cost_nano_usd}, now),
            full_limits=full_limits(installation, tx, wants, now),
            elsewhere=elsewhere,
        )
    require_budgets(view, lambda: _needed_if_cheapest(installation, seen, market, after))
    return replace(view, supposed=tuple(assumptions), without=without)


def _solved(
    installation: Installation, seen: Inputs, market: Market, policy: GroupPolicy, after: Order
) -> tuple[Joint, Course]:
    asked = question(installation, seen, market)
    found = joint(asked, policy, seen.running, after=after)
    unfolded = course(asked, policy, found, seen.running, after)
    return judged(asked, found, unfolded, after) if by_course(asked, policy, after) else found, unfolded


def _needed(installation: Installation, seen: Inputs, market: Market, unfolded: Course) -> dict[str, Needed]:
    needed = needed_budgets(seen.demands, market, seen.perf, limits=limits(installation.config))
    return {each.job_id: asked_of(needed[each.job_id], usd(f"{each.cost_usd:.9f}")) for each in unfolded.jobs}


def _needed_if_cheapest(installation: Installation, seen: Inputs, market: Market, after: Order) -> tuple[Needed, ...]:
    _, unfolded = _solved(installation, seen, market, "cheapest", after)
    return tuple(_needed(installation, seen, market, unfolded).values())


def _remedies(installation: Installation, seen: Inputs, market: Market, policy: GroupPolicy) -> Remedies:
    return find_remedies(seen.demands, market, seen.perf, policy, seen.running, limits=limits(installation.config))


def _without(installation: Installation, seen: Inputs, policy: GroupPolicy, after: Order, now_ms: int) -> Without:
    try:
        _, unfolded = _solved(installation, seen, seen.market, policy, after)
    except InfeasibleError as error:
        return Without(None, None, str(error))
    return Without(usd(f"{unfolded.cost_usd:.9f}"), _at(now_ms, unfolded.ends_s))


def _view(
    group: GroupSpec,
    jobs: Sequence[Job],
    seen: Inputs,
    found: Joint,
    unfolded: Course,
    valued: Sequence[QuotaValue],
    needed: Mapping[str, Needed],
    now_ms: int,
    age_s: float | None,
) -> GroupPlanView:
    of_job, names = {each.job_id: each for each in unfolded.jobs}, {job.id: job.name for job in jobs}
    planned = []
    for job in jobs:
        own = of_job[job.id]
        finish_at_ms, due_ms = _at(now_ms, own.ends_s), job.deadline_at_ms
        planned.append(
            PlannedJob(
                job.name,
                job.weight,
                tuple(names[each] for each in job.after),
                tuple(PlannedPart(each.offer_id, each.share) for each in own.parts),
                own.steps_per_s,
                usd(f"{own.cost_usd:.9f}"),
                _at(now_ms, own.ready_s),
                finish_at_ms,
                due_ms,
                due_ms is not None and (finish_at_ms is None or finish_at_ms > due_ms + LATE_MS),
                job.spec.budget_nano_usd,
                needed[job.id].least,
                needed[job.id].enough,
            )
        )
    return GroupPlanView(
        at_ms=now_ms,
        group=group.name,
        policy=group.policy,
        project=group.project,
        simulated=seen.market.listing.simulated,
        price_age_s=age_s,
        jobs=tuple(planned),
        cost_nano_usd=sum(each.cost_nano_usd for each in planned),
        finish_at_ms=_last(planned),
        budget_nano_usd=group.budget_nano_usd,
        enough_budget_nano_usd=enough_together(planned),
        objective=found.value,
        bound=found.bound,
        gap=found.gap,
        worths=tuple(map(_worth, valued)),
        stopped_after_s=found.stopped_after_s,
    )


def _last(planned: Sequence[PlannedJob]) -> int | None:
    ends = [each.finish_at_ms for each in planned if each.finish_at_ms is not None]
    return max(ends, default=None) if len(ends) == len(planned) else None


def _worth(worth: QuotaValue) -> UnitWorth:
    cloud, quota = worth.quota
    return UnitWorth(
        key=key_of(worth.quota),
        quota=quota.name,
        cloud=cloud,
        scope=quota.scope,
        unit="units" if quota.covers is None else quota.covers.unit,
        owned=quota.owned,
        limit=quota.limit,
        used=quota.used,
        more=worth.more,
        saving_nano_usd=usd(f"{worth.saving_usd:.9f}"),
        sooner_s=worth.sooner_s,
        value=worth.value,
    )


def _at(now_ms: int, after_s: float) -> int | None:
    return None if math.isinf(after_s) else now_ms + round(1000 * after_s)
