"""Lateness: which jobs cannot all be on time, when they would end instead, and the errors that say so.

Where the deadlines of jobs differ, they can take turns (in_turns.py). With one deadline for all, each job's part of the
time is constant (policies/cost.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.formats.readable import span
from orchestrator.policy.groups.collection import Collection
from orchestrator.policy.groups.in_turns import least_late, takes_turns, windows
from orchestrator.policy.groups.policies.cost import HARDLY, late, on_time
from orchestrator.policy.groups.problem import Floats, Integers
from orchestrator.policy.groups.time_limit import TimeLimit

ALL_LATE = 1e-9
"""A job that does no more than this part of its steps by its deadline has no end."""
SOME_MORE = 1e-4
"""The solver's plan is late by this much more, relatively, so that rounding errors do not matter."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """If the least work is late: the late `jobs` (late,), when each job ends (`ends_s` (jobs,); its deadline if it is
    on time, infinite if it has none or no end is known), and `prices` (quotas,): how much of the late work one more
    unit of each quota would avoid."""

    jobs: Integers
    ends_s: Floats
    prices: Floats


def lateness(jobs: Collection, until: TimeLimit) -> Lateness:
    """Which jobs are late. `jobs`: with their starts. Raises LimitError when the time is up."""
    due_s = windows(jobs)
    if takes_turns(jobs):
        turns = least_late(jobs, until)
        some = np.flatnonzero(turns.late)
        return Lateness(some, turns.ends_s, turns.prices)
    need = np.where(np.isfinite(due_s), jobs.steps / due_s, 0.0)
    found = late(jobs, need, until)
    reached = need.copy()
    reached[found.jobs] -= found.missing * (1 + SOME_MORE)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends_s = np.where(reached > ALL_LATE * need, jobs.steps / reached, np.inf)
    return Lateness(found.jobs, ends_s, found.prices[len(found.prices) - len(jobs.quotas) :])


def conflict(names: Sequence[str], jobs: Collection, error: InfeasibleError, until: TimeLimit) -> InfeasibleError:
    """An error that says which jobs cannot all be on time, and how long they would take instead."""
    try:
        found = lateness(jobs, until) if on_time(jobs).any() else None
    except LimitError:
        return error
    if found is None or not found.jobs.size:
        return error
    stated = []
    for job in found.jobs.tolist():
        left, instead = _apart_h(jobs.deadline_s[job] / 3600, found.ends_s[job] / 3600)
        stated.append(f"{names[job]} (deadline in {left}, {instead} with the remaining quota)")
    binding = [each.name for each, price in zip(jobs.quotas, found.prices, strict=True) if price > HARDLY]
    quotas = ", ".join(binding or [each.name for each in jobs.quotas])  # the price may be on a way's own limit instead
    more = f"; and {len(stated) - 8} more" if len(stated) > 8 else ""
    return InfeasibleError(
        f"not all deadlines can be met within the quotas ({quotas}): {'; '.join(stated[:8])}{more}",
        hint="see the effect of a larger quota: --what-if quota.CLOUD.SCOPE.NAME=LIMIT; or set later deadlines",
    )


def _apart_h(left_h: float, ends_h: float) -> tuple[str, str]:
    """Texts for both, with enough digits to distinguish them."""
    if not np.isfinite(ends_h):
        return f"{left_h:.3g} h", "no end"
    for digits in range(3, 10):
        left, ends = f"{left_h:.{digits}g} h", f"{ends_h:.{digits}g} h"
        if left != ends:
            break
    return left, ends


def require_fast_enough(names: Sequence[str], jobs: Collection) -> None:
    """Raises InfeasibleError with the names of the jobs that no offer runs fast enough, even without other jobs.
    `jobs`: with their starts."""
    slower = np.flatnonzero(on_time(jobs) > jobs.rate.max(axis=1) * (1 + 1e-7))
    if slower.size:
        slow = [
            f"{names[job]} ({_too_short(jobs.steps[job] / jobs.rate[job].max(), jobs.deadline_s[job])})"
            for job in slower[:8].tolist()
        ]
        raise InfeasibleError(
            f"no offer meets the deadline of {', '.join(slow)}",
            hint="set later deadlines for them, or allow faster offers",
        )


def _too_short(takes_s: float, left_s: float) -> str:
    takes = f"takes {span(takes_s)} on its fastest offer, including its start"
    if left_s <= 0:
        return f"its deadline passed {span(-left_s)} ago, and it {takes}"
    return f"{takes}, but only {span(left_s)} is left"
