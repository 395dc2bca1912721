"""The input of a group's joint plan. If no offer fits some jobs, the error names all of them, with a remedy in terms of
group files."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.engine.inputs.snapshot import Inputs, limits
from orchestrator.errors import InfeasibleError
from orchestrator.installation import Installation
from orchestrator.market import Market
from orchestrator.policy import OVER_LIMITS, Demand, MoveLimits, prospects
from orchestrator.policy.groups.planning import Asked, asked

SEE_WHY = "see why: tradewind plan GROUP.yaml --why; then "
"""Prefix of hints about jobs that fit no offer; the command line replaces GROUP.yaml with the name of the file."""
NAMED = 8
"""Messages name at most this many jobs, or kinds of GPU, and count the others."""


def question(installation: Installation, seen: Inputs, market: Market) -> Asked:
    """The input of the joint plan of these jobs. Raises InfeasibleError, naming all jobs without known steps or speed,
    or without an offer that they can use."""
    bounds = limits(installation.config)
    try:
        return asked(seen.demands, market, seen.perf, seen.running, limits=bounds)
    except InfeasibleError as error:
        raise _of_all(seen, market, bounds) or error from error


def _of_all(seen: Inputs, market: Market, bounds: MoveLimits) -> InfeasibleError | None:
    """The reasons why jobs cannot be planned, each with its jobs, and the remedies."""
    reasons: dict[str, list[str]] = {}
    remedies: dict[str, None] = {}
    misfits: list[str] = []
    for demand in seen.demands:
        name = demand.job.name
        if not _has_gpus(demand, market):
            reasons.setdefault(_without_gpus(demand, market), []).append(name)
            first = demand.job.spec.resources.gpus[0].name
            remedies[f"change `resources.gpu`, or enable a provider that has them: tradewind offers --gpu {first}"] = (
                None
            )
            continue
        try:
            asked([demand], market, seen.perf, seen.running, limits=bounds)
        except InfeasibleError as error:
            reasons.setdefault(str(error).removeprefix(f"{name}: "), []).append(name)
            found, barred = prospects(demand, market, seen.perf, limits=bounds)
            if found or OVER_LIMITS in barred:
                remedies[error.hint] = None
            else:  # a job of a group may have no job file of its own to plan
                misfits.append(name)
    if misfits:
        remedies[f"{SEE_WHY}relax what {_listed(misfits, 'jobs')} ask{'' if misfits[1:] else 's'} for"] = None
    message = "\n".join(_of_jobs(reason, names) for reason, names in reasons.items())
    return InfeasibleError(message, hint="\n".join(remedies)) if reasons else None


def _of_jobs(reason: str, names: Sequence[str]) -> str:
    others = f"; the same is true of {_listed(names[1:], 'jobs')}" if names[1:] else ""
    return f"{names[0]}: {reason}{others}"


def _has_gpus(demand: Demand, market: Market) -> bool:
    """Whether some machine of the market has the GPUs that the job requires, ignoring its other requirements."""
    wanted = demand.job.spec.resources.gpus
    return not wanted or any((each.name, each.count) in market.listing.kinds for each in wanted)


def _without_gpus(demand: Demand, market: Market) -> str:
    wanted = " or ".join(_gpus(each.name, each.count) for each in demand.job.spec.resources.gpus)
    offered = [_gpus(name, count) for name, count in market.listing.kinds if name is not None]
    there = f"available machines have {_listed(offered, 'kinds')}" if offered else "no available machine has a GPU"
    return f"no machine of the enabled providers has {wanted}; {there}"


def _gpus(name: str, count: int) -> str:
    """A kind and number of GPUs as in a job file."""
    return name if count == 1 else f"{name}:{count}"


def _listed(names: Sequence[str], what: str) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} other {what}" if rest > 0 else "")
