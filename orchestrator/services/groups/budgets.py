"""The budget of a group: how much is enough, and its division among jobs.

`plan`, `submit --dry-run` and `submit` use the same figures: the budget that each job's own placement needs
(policy.needed_budget), and never less than the joint plan's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.engine.billing.group_budget import divided
from orchestrator.errors import LimitError
from orchestrator.policy.ranking.enough import Needed
from orchestrator.services.groups.views import GroupPlanView, PlannedJob
from providers.money import about_usd, at_least_usd, whole_usd

CENT_NANO_USD = 10_000_000
NAMED = 8
"""Messages name at most this many jobs and count the others."""


def asked_of(needed: Needed, cost_nano_usd: int) -> Needed:
    """The budget that a job needs if its part of the joint plan costs this much."""
    least = max(needed.least, cost_nano_usd)
    return Needed(least, max(needed.enough, least))


def enough_together(jobs: Sequence[PlannedJob]) -> int:
    """The smallest budget of a group (nano-USD) that gives each job enough, or as much as its own budget allows."""
    return sum(_enough(job) for job in jobs)


def parts(budget_nano_usd: int, jobs: Sequence[PlannedJob]) -> tuple[int, ...]:
    """Each job's part of a budget that `require_budgets` accepts. Each job gets at least its minimum; the rest goes, in
    proportion, towards what is enough for each, and any surplus is divided in proportion to what is enough."""
    own = [job.budget_nano_usd for job in jobs]
    enough = [_enough(job) for job in jobs]
    if budget_nano_usd >= sum(enough):
        return divided(budget_nano_usd, enough, own)
    least = [job.least_budget_nano_usd for job in jobs]
    more = divided(
        budget_nano_usd - sum(least),
        [most - begun for most, begun in zip(enough, least, strict=True)],
        [None if each is None else each - begun for each, begun in zip(own, least, strict=True)],
    )
    return tuple(begun + each for begun, each in zip(least, more, strict=True))


def require_budgets(view: GroupPlanView, cheapest: Callable[[], Sequence[Needed]]) -> None:
    """Raises LimitError if a job's own budget, or the group's budget, is too small. It names a sufficient budget; for a
    policy other than `cheapest`, also the budget needed with `cheapest`."""
    poor = [job for job in view.jobs if job.budget_nano_usd is not None and job.budget_nano_usd < _least(job)]
    if poor:
        have = [
            f"{job.name} (has {_exact(job.budget_nano_usd or 0)}, needs at least about {at_least_usd(_least(job))})"
            for job in poor
        ]
        enough = [f"{job.name} {_dollars(job.enough_budget_nano_usd)}" for job in poor]
        raise LimitError(
            f"the budgets of these jobs are too small: {_listed(have)}",
            hint=f"budgets that are enough: {_listed(enough)}{_of_the_group(view, poor)}",
        )
    budget, least = view.budget_nano_usd, sum(map(_least, view.jobs))
    if budget is None or budget >= least:
        return
    whole = enough_together(view.jobs)
    hint = f"a budget of {_dollars(whole)} is enough"
    if view.policy != "cheapest" and (other := sum(each.enough for each in cheapest())) < whole:
        hint += f", or {_dollars(other)} with the policy cheapest"
    raise LimitError(
        f"the budget of {view.group} is {_exact(budget)}, but its jobs need at least about {at_least_usd(least)} "
        f"together{_counted(view, least)}",
        hint=hint,
    )


def _of_the_group(view: GroupPlanView, poor: Sequence[PlannedJob]) -> str:
    """A sufficient budget for the group, if its budget is too small once the `poor` jobs get theirs."""
    raised = [_whole_cents(job.enough_budget_nano_usd) if job in poor else _enough(job) for job in view.jobs]
    needed = max(sum(map(_least, view.jobs)), *(_whole_cents(job.enough_budget_nano_usd) for job in poor))
    if view.budget_nano_usd is None or view.budget_nano_usd >= needed:
        return ""
    return f"; and {_dollars(sum(raised))} for the group {view.group}"


def _counted(view: GroupPlanView, least: int) -> str:
    """What the minimum is based on: the cost in the plan or, if higher, the 5th percentiles of the jobs' costs."""
    if least <= view.cost_nano_usd:
        return ", which is the cost of the plan (an estimate, without interruptions and moves)"
    return ", even if all goes well (an estimate with likely interruptions and price changes)"


def _least(job: PlannedJob) -> int:
    return job.least_budget_nano_usd


def _enough(job: PlannedJob) -> int:
    own = job.budget_nano_usd
    return job.enough_budget_nano_usd if own is None else min(job.enough_budget_nano_usd, own)


def _exact(nano_usd: int) -> str:
    """The budget as it was set, with at least as many digits as the amount that it is compared with."""
    return max(about_usd(nano_usd), whole_usd(nano_usd), key=len)


def _dollars(nano_usd: int) -> str:
    """The amount in cents, rounded up."""
    return whole_usd(_whole_cents(nano_usd))


def _whole_cents(nano_usd: int) -> int:
    return -(-nano_usd // CENT_NANO_USD) * CENT_NANO_USD


def _listed(texts: Sequence[str]) -> str:
    rest = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {rest} other jobs" if rest > 0 else "")
