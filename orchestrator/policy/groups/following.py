"""Following: what jobs that can run now must know about the jobs after them: how long those take, under `makespan`, and
their deadlines, under every policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from orchestrator.market import Market
from orchestrator.model import Job
from orchestrator.perf import PerfBook
from orchestrator.policy.decide import considered
from orchestrator.policy.demand import Demand, MoveLimits, Running
from orchestrator.policy.groups.collection import Collection
from orchestrator.policy.groups.order import Order, before_each, due_before, time_after
from orchestrator.policy.groups.planning import NOWHERE, Asked, asked, joint, without_deadlines
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.time_limit import TimeLimit
from orchestrator.policy.groups.urgency import URGENT
from orchestrator.policy.ranking.eligible import Filters
from orchestrator.policy.ranking.order import may_keep_limits


def knowing_what_follows(
    question: Asked, of_all: Asked, after: Order, running: Mapping[str, Running] = NOWHERE, *, until: TimeLimit
) -> Asked:
    """The question about jobs that can run now, with how long the jobs `of_all` take that come after them, by the plan
    of least makespan. Raises LimitError."""
    plan = joint(without_deadlines(of_all), "makespan", running, after=after, until=until)
    takes_s = np.array(
        [
            each.duration_s * sum(part.share for part in each.parts) if each.steps_per_s > 0 else 0.0
            for each in plan.jobs
        ]
    )
    ids = [each.job_id for each in plan.jobs]
    after_s = dict(zip(ids, time_after(before_each(ids, after), takes_s).tolist(), strict=True))
    following_s = np.array([after_s[each.job.id] for each in question.demands])
    return replace(question, jobs=replace(question.jobs, after_s=following_s))


def in_time_for_what_follows(question: Asked, of_all: Asked, after: Order) -> Asked:
    """The question about jobs that can run now, with deadlines so early that the jobs `of_all` that come after them can
    be on time, too. Each of these is assumed to run where it is fastest, from when it can start. A job hurries only on
    offers that its own budget certainly pays for, and not at all if it cannot be in time there."""
    of_job, _ = _due_s(of_all, after)
    jobs, own_s, paid = question.jobs, question.jobs.deadline_s, question.paid
    due_s = np.array([of_job[each.job.id] for each in question.demands])
    found_s, rate = due_s - question.begins_s, np.where(paid, jobs.rate, 0.0)
    able = (_takes_s(replace(jobs, rate=rate)) <= due_s) | paid.all(axis=1)
    hurries = (found_s < own_s) & able
    rate = np.where(hurries[:, None], rate, jobs.rate)
    return replace(question, jobs=replace(jobs, deadline_s=np.where(hurries, found_s, own_s), rate=rate))


def before_deadlines(jobs: Iterable[Job]) -> set[str]:
    """The ids of all direct and indirect predecessors of the jobs here that have deadlines."""
    after = {job.id: job.after for job in jobs}
    found, ahead = set[str](), [each for job in jobs if job.deadline_at_ms is not None for each in job.after]
    while ahead:
        if (job_id := ahead.pop()) not in found:
            found.add(job_id)
            ahead += after.get(job_id, ())
    return found


def due_for_what_follows(
    demands: Sequence[Demand],
    later: Sequence[Demand],
    market: Market,
    perf: PerfBook,
    running: Mapping[str, Running],
    limits: MoveLimits,
) -> Mapping[str, int]:
    """By job id, the earlier deadlines (epoch ms) of those of these jobs that must end before their own deadlines, so
    that the jobs `later`, which come after them, can be on time. A tenth of the time is kept in reserve, or as much as
    there is.

    A job is left out if it cannot end so early on any offer for which its own budget surely pays: hurrying would only
    cost money."""
    jobs = [each.job for each in (*demands, *later)]
    hurry = before_deadlines(jobs)
    concerned = [
        each
        for each in (*demands, *later)
        if each.job.id in hurry or (each.job.after and each.job.deadline_at_ms is not None)
    ]
    filters = Filters(market, limits)
    of_all = asked(concerned, market, perf, running, limits=limits, partly=True, filters=filters)
    if not of_all.rows:
        return {}
    of_all = replace(of_all, jobs=replace(of_all.jobs, start_s=_with_moves_s(of_all, running)))
    after = {job.id: job.after for job in jobs}
    due_s, takes_s = _due_s(of_all, after)
    early_s, longer_s = _due_s(of_all, after, reserve=1 / URGENT)
    found = {}
    for each in demands:
        job_id, own_ms = each.job.id, each.job.deadline_at_ms
        if job_id not in hurry or not takes_s.get(job_id, np.inf) <= due_s.get(job_id, np.inf) < np.inf:
            continue
        until_s = early_s[job_id]
        if longer_s[job_id] > until_s:  # both change in proportion to the reserve, so this is where they are equal
            spare_s, short_s = due_s[job_id] - takes_s[job_id], longer_s[job_id] - until_s
            until_s = takes_s[job_id] + (longer_s[job_id] - takes_s[job_id]) * spare_s / (spare_s + short_s)
        due_ms = market.at + round(1000 * until_s)
        if (own_ms is None or due_ms < own_ms) and _can(each, due_ms, filters, perf, running.get(job_id)):
            found[job_id] = due_ms
    return found


def _with_moves_s(of_all: Asked, running: Mapping[str, Running]) -> Floats:
    """(jobs, ways): how long each job does not train before it is there; a running one, if it has to move there."""
    takes_s = np.zeros(of_all.jobs.rate.shape) if of_all.jobs.start_s is None else of_all.jobs.start_s.copy()
    for index, each in enumerate(of_all.demands):
        if (here := running.get(each.job.id)) is not None:
            moves = np.array([offer_id != here.offer_id for offer_id in of_all.ids])
            takes_s[index] = moves * each.gap_s
    return takes_s


def hurrying(demand: Demand, due_ms: int) -> Demand:
    """The demand with a deadline that is not the job's own."""
    spec = replace(demand.job.spec, deadline_s=None, deadline_at_ms=due_ms)
    return replace(demand, job=replace(demand.job, spec=spec), hurries=True, own_due_ms=demand.job.deadline_at_ms)


def _can(demand: Demand, due_ms: int, filters: Filters, perf: PerfBook, running: Running | None) -> bool:
    """Whether a job that hurries may be on time within its budget."""
    if demand.job.spec.budget_nano_usd is None:
        return True
    filtering, hurried = filters.of(demand.nodes), hurrying(demand, due_ms)
    filtered, forecast = considered(hurried, filtering, filtering.market, perf, running, None)
    return may_keep_limits(hurried, forecast, filtered)


def _due_s(of_all: Asked, after: Order, reserve: float = 1.0) -> tuple[dict[str, float], dict[str, float]]:
    """(when each job has to end, so that each after it can be on time where it is fastest, how long it takes there at
    least, start included); by job id, in seconds from now. `reserve`: how many times as long jobs may take."""
    jobs, ids, takes_s = of_all.jobs, [each.job.id for each in of_all.demands], _takes_s(of_all.jobs)
    due_s = due_before(before_each(ids, after), jobs.deadline_s + of_all.begins_s, reserve * takes_s)
    return dict(zip(ids, due_s.tolist(), strict=True)), dict(zip(ids, (reserve * takes_s).tolist(), strict=True))


def _takes_s(jobs: Collection) -> Floats:
    """(jobs,): seconds that each job takes where it is fastest, start included; infinite where it cannot run."""
    start_s = np.zeros(jobs.rate.shape) if jobs.start_s is None else jobs.start_s
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(jobs.rate > 0, start_s + jobs.steps[:, None] / jobs.rate, np.inf).min(axis=1)
    return np.where(jobs.steps > 0, found, 0.0)
