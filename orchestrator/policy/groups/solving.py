"""Solving with deadlines: each job's part of the time is constant, or jobs take turns where that is cheaper or the only
way to be on time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.collection import Collection
from orchestrator.policy.groups.engine import TELLING, Uncertified, solve
from orchestrator.policy.groups.in_turns import Turns, cheapest_turns, due_turns, windows
from orchestrator.policy.groups.linear import Contradiction, OutOfTime
from orchestrator.policy.groups.policies.total_cost import least_total_cost, patient_horizon_s
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.program import Allocation, Certificate, Program, Ratio
from orchestrator.policy.groups.time_limit import TimeLimit

LONGER, TRIES = 2.0, 12
"""Jobs without a deadline are to end within a horizon. While the quotas do not suffice for it, it is made LONGER times
as long, for at most TRIES tries in all."""
ROUNDING = 1e-9
"""What jobs need now is less than what they have in the turns by this part."""
SAME_COST = 1e-6
"""Plans whose costs differ by no more than this, relatively, cost the same. Shares that do not change are simpler."""


def cheapest(jobs: Collection, until: TimeLimit) -> tuple[Allocation, Turns | None]:
    """The plan of least total cost; and the turns, if jobs take turns because that is cheaper, or else not possible."""
    taking_turns = _can_take_turns(jobs)
    found: Allocation | None = None
    try:
        found = _constant(jobs, until, 1 if taking_turns else TRIES)
    except InfeasibleError:
        if not taking_turns:
            raise
    if not taking_turns or (found is not None and not found.certificates[0].prices.any()):
        assert found is not None
        return found, None
    try:
        turns = cheapest_turns(jobs, until)
    except (OutOfTime, Contradiction):
        if found is None:
            raise
        return replace(_with_bound(found, _least_usd(jobs), until), in_time=False), None
    if found is not None and found.certificates[0].value <= turns.value * (1 + SAME_COST):
        return _with_bound(found, turns.bound, until), None
    nothing: Floats = np.zeros(0)
    certificate = Certificate(turns.value, turns.bound, nothing, nothing)
    return Allocation(nothing, nothing, turns.now, nothing, (certificate,)), turns


def _can_take_turns(jobs: Collection) -> bool:
    """Whether there is a deadline, and some jobs have more time than others; those without a deadline have most."""
    window_s = windows(jobs)
    return bool(np.isfinite(window_s).any()) and len(np.unique(window_s)) > 1


def _constant(jobs: Collection, until: TimeLimit, tries: int) -> Allocation:
    """The plan of least total cost in which each job's part of the time is constant until its deadline. Jobs without a
    deadline end within the shortest horizon tried that the quotas allow."""
    horizon_s = patient_horizon_s(jobs)
    for last in range(tries, 0, -1):
        try:
            return solve(least_total_cost(jobs, horizon_s), until=until)
        except InfeasibleError:
            if last == 1:
                raise
        horizon_s *= LONGER
    raise AssertionError("unreachable")


def _with_bound(found: Allocation, bound: float, until: TimeLimit) -> Allocation:
    """The answer with a bound that counts that jobs can take turns."""
    first = replace(found.certificates[0], bound=min(bound, found.certificates[0].value))
    if first.gap > TELLING:
        raise OutOfTime(until)
    return replace(found, certificates=(first,))


def _least_usd(jobs: Collection) -> float:
    """What the jobs cost if nothing limits any of them: a simple bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        usd = np.where(jobs.rate > 0, jobs.usd_per_h_started * jobs.steps[:, None] / jobs.rate, np.inf)
    return float(usd.min(axis=1).sum()) / 3600


def in_time(jobs: Collection, program: Program, until: TimeLimit) -> tuple[Allocation, Turns | None]:
    """The plan of a policy; and the turns, if the jobs have to take turns to be on time.

    What each job then needs now is chosen: other plans may be better. So the bound is that without deadlines.
    """
    try:
        return solve(program, until=until), None
    except (InfeasibleError, Uncertified):
        if not _can_take_turns(jobs):
            raise
    turns = due_turns(jobs, until)
    bound = solve(replace(program, at_least=None), until=until).certificates[0].bound
    need = np.where(np.isfinite(windows(jobs)), (turns.now * jobs.rate).sum(axis=1) * (1 - ROUNDING), 0.0)
    nothing: Floats = np.zeros(0)
    try:
        found = solve(replace(program, at_least=need), until=until)
    except (InfeasibleError, Uncertified):  # some jobs have to wait, and an infinite ratio has no program
        term = program.terms[0]
        assert isinstance(term, Ratio)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = term.needs.reached(np.where(jobs.steps > 0, jobs.steps / turns.ends_s, 0.0))
        found = Allocation(nothing, nothing, turns.now, nothing, (Certificate(value, bound, nothing, nothing),))
    first, most = found.certificates[0], program.terms[0].most
    value = min(first.value, bound) if most else max(first.value, bound)
    return replace(found, certificates=(replace(first, value=value, bound=bound),)), turns
