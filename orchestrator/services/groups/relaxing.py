"""Adds to an error the changes that would make a plan of a group possible, and the cost of the plan with each."""

from __future__ import annotations

from orchestrator.errors import InfeasibleError, Relaxation
from orchestrator.formats.readable import span
from orchestrator.market import QuotaName
from orchestrator.policy.groups.remedies import Later, Raised, Remedies
from orchestrator.services.groups.what_if import key_of, option
from providers.money import about_usd, usd

NAMED = 3
"""Messages name at most this many jobs, or quotas, and count the others. (JSON names all.)"""


def with_remedies(error: InfeasibleError, found: Remedies, *, ordered: bool = False) -> InfeasibleError:
    """The error with the possible changes in its hint, one per line, and as `relaxations`; unchanged if there are
    none. `ordered`: jobs wait for others, which the changes do not count."""
    relaxations = _relaxations(found)
    if not relaxations:
        return error
    enough = [_later(each) for each in found.later]
    raised = sorted(found.raised, key=lambda each: each.cost_usd)
    enough += [_raised(each) for each in raised]
    lines = []
    if enough:
        one = "each of these changes alone is enough" if len(enough) > 1 else "this change is enough"
        order = ", not counting the order of jobs" if ordered else ""
        lines += [f"{one} (estimates, for the whole group{order}):", *(f"  {each}" for each in enough)]
    if found.not_enough:
        lines.append(f"not enough by itself: more {_listed([_name(each) for each in found.not_enough], 'quotas')}")
    unknown = ["later deadlines"] if found.delay_unknown else []
    unknown += [f"more {_name(each)}" for each in found.unknown]
    if unknown:
        lines.append(f"not computed in time: {_listed(unknown, 'changes')}")
    if raised or found.unknown:
        example = option(raised[0].quota, raised[0].limit) if raised else "--what-if quota.CLOUD.SCOPE.NAME=LIMIT"
        lines.append(f"to see the plan with another quota: {example}")
    return InfeasibleError(str(error), hint="\n".join(lines), relaxations=relaxations)


def _relaxations(found: Remedies) -> list[Relaxation]:
    relaxations = []
    for later in found.later:
        relaxations.append(Relaxation(True, later.jobs, later.delay_s, cost_nano_usd=_nano(later.cost_usd)))
    if found.delay_unknown:
        relaxations.append(Relaxation(None))
    for each in found.raised:
        name = each.quota
        relaxations.append(
            Relaxation(
                True,
                quota=key_of(name),
                limit=each.limit,
                instead_of=name[1].limit,
                cost_nano_usd=_nano(each.cost_usd),
            )
        )
    for enough, names in ((False, found.not_enough), (None, found.unknown)):
        relaxations += [Relaxation(enough, quota=key_of(name), instead_of=name[1].limit) for name in names]
    return relaxations


def _later(later: Later) -> str:
    if later.all_deadlines and len(later.jobs) > 1:
        whose = "all deadlines"
    elif len(later.jobs) == 1:
        whose = f"the deadline of {later.jobs[0]}"
    else:
        whose = f"the deadlines of {_listed(list(later.jobs), 'jobs')}"
    return f"{whose} {span(later.delay_s)} later: about {_cost(later.cost_usd)} in total"


def _raised(raised: Raised) -> str:
    quota = raised.quota[1]
    unit = {"vcpus": "vCPUs of ", "gpus": "GPUs of "}.get("" if quota.covers is None else quota.covers.unit, "")
    what = f"machines on {quota.scope}" if quota.owned else f"{unit}{_name(raised.quota)}"
    return f"{raised.limit} instead of {quota.limit} {what}: about {_cost(raised.cost_usd)} in total"


def _name(name: QuotaName) -> str:
    cloud, quota = name
    return f"machines on {quota.scope}" if quota.owned else f"{quota.name} in {cloud}/{quota.scope}"


def _listed(names: list[str], what: str) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} other {what}" if rest > 0 else "")


def _cost(cost_usd: float) -> str:
    return about_usd(_nano(cost_usd))


def _nano(cost_usd: float) -> int:
    return usd(f"{cost_usd:.9f}")
