"""Course of a joint plan: when each job can start, when it ends and how much it costs. Pure; an estimate.

The control plane plans again whenever a job ends: its machines are divided among the others, and jobs that come after
it can start. The course does the same: it plans the jobs that can run, advances to the next end, and plans again.
Between two plans, time is shared as the plan says, and any fraction of a machine is available. Moves and interruptions
are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.model import GroupPolicy
from orchestrator.policy.demand import Running
from orchestrator.policy.groups.following import in_time_for_what_follows, knowing_what_follows
from orchestrator.policy.groups.order import NO_ORDER, Before, Order, before_each, followers
from orchestrator.policy.groups.planning import (
    LEAST_SHARE,
    MOST_S,
    NOWHERE,
    Asked,
    JobPlan,
    Joint,
    Part,
    joint,
    less_late,
    without_deadlines,
)
from orchestrator.policy.groups.policies.makespan_in_order import makespan_in_order
from orchestrator.policy.groups.problem import Floats, Integers
from orchestrator.policy.groups.time_limit import TimeLimit

MANY, MOST_IDLE = 40, 0.05
"""Large groups are planned only about MANY times, so that the course takes seconds: several ends are handled together.
Until the next plan, the machines of jobs that have ended stay idle; they are at most the share MOST_IDLE of all
machines in use. So the times are slightly too long."""
WHOLE = 1.0 - 1e-6
"""A job with at least this share never waits for others."""
SAME_TIME = 10 * LEAST_SHARE
"""Ends that differ by less than this (relative) count as one, because shares are no more precise."""

AT_THE_END = 2e-6
"""A job that ends this close (relative) to a change of shares ends then: deadlines are met to this precision."""


@dataclass(frozen=True, slots=True)
class JobCourse:
    """The course of one job: it can start `ready_s` from now and ends `ends_s` from now (market seconds; infinite if
    unknown).

    `parts` and `steps_per_s` are from the plan that is in force when it can start. `cost_usd` is the cost until its
    end.
    """

    job_id: str
    parts: tuple[Part, ...]
    steps_per_s: float
    ready_s: float
    ends_s: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Course:
    """The course of all jobs, in the order of the plan."""

    jobs: tuple[JobCourse, ...]

    @property
    def cost_usd(self) -> float:
        """The cost of all jobs."""
        return sum(each.cost_usd for each in self.jobs)

    @property
    def ends_s(self) -> float:
        """Market seconds until the last job ends; infinite if that is not known."""
        return max((each.ends_s for each in self.jobs), default=0.0)


def course(
    question: Asked,
    policy: GroupPolicy,
    plan: Joint,
    running: Mapping[str, Running] = NOWHERE,
    after: Order = NO_ORDER,
    *,
    until: TimeLimit | None = None,
) -> Course:
    """The course of `plan`, which answers `question` as if all jobs could start now.

    `after` names only jobs of the plan. When `until` runs out (default: after MOST_S seconds of solving), the remaining
    ends are infinite.
    """
    if math.isinf(plan.holds_s) and all(_alone(each) for each in plan.jobs):
        return _side_by_side(plan, [after.get(each.job_id, ()) for each in plan.jobs])
    until = TimeLimit(MOST_S) if until is None else until
    found = _Unfolding(question, plan, before_each([each.job_id for each in plan.jobs], after))
    while (there := found.there()).size:
        at_first = there.size == len(plan.jobs)
        now = plan if at_first else _planned(found, there, policy, running, after, until)
        if now is None or until.left_s == 0 or not found.advance(there, now):
            break
    return found.course()


def by_course(question: Asked, policy: GroupPolicy, after: Order) -> bool:
    """Whether only its course says how good a plan is: under makespan, if some jobs come after others, or if some have
    deadlines. Then shares change over time: the machines that a job needs for its deadline are free when it has ended.
    """
    due = bool(np.isfinite(question.jobs.deadline_s).any())
    return policy == "makespan" and (due or any(after.values()))


def judged(question: Asked, plan: Joint, unfolded: Course, after: Order) -> Joint:
    """The plan of least makespan with the end of its course as its value. The bound counts the starts, and so does the
    course; it is that of the same jobs without deadlines. If the end is not known, or the time is up, the plan is not
    changed."""
    if not math.isfinite(unfolded.ends_s):
        return plan
    if not any(after.values()):
        try:
            free = without_deadlines(question)
            found = makespan_in_order(free.jobs, [()] * len(free.jobs), free.begins_s, TimeLimit(MOST_S))
            plan = replace(plan, bound=found.certificates[0].bound)
        except LimitError:
            return plan
    value = max(unfolded.ends_s, plan.bound)  # shares are less precise than the bound
    return replace(plan, value=value, gap=(value - plan.bound) / max(plan.bound, 1e-12))


def _alone(plan: JobPlan) -> bool:
    """Whether the job never waits for a machine of another job."""
    return plan.duration_s == 0.0 or sum(part.share for part in plan.parts) >= WHOLE


def _side_by_side(plan: Joint, before: Sequence[Sequence[str]]) -> Course:
    """The course if no job waits for a machine of another job."""
    found = dict[str, JobCourse]()
    waiting = dict(zip(plan.jobs, before, strict=True))
    while waiting:
        for each in [job for job, first in waiting.items() if all(job_id in found for job_id in first)]:
            ready_s = max((found[job_id].ends_s for job_id in waiting.pop(each)), default=0.0)
            ends_s = ready_s + each.duration_s
            found[each.job_id] = JobCourse(each.job_id, each.parts, each.steps_per_s, ready_s, ends_s, each.cost_usd)
    return Course(tuple(found[each.job_id] for each in plan.jobs))


def _planned(
    found: _Unfolding,
    there: Integers,
    policy: GroupPolicy,
    running: Mapping[str, Running],
    after: Order,
    until: TimeLimit,
) -> Joint | None:
    """The plan of these jobs; None if there is none. It leaves time for jobs that come after them and have deadlines,
    if all can be on time so. If not all can meet their own deadlines, the least work is late."""
    question, unfinished = found.question(there), found.unfinished()
    tried = [question]
    try:
        if unfinished.size > there.size and (policy == "makespan" or found.has_deadlines(unfinished)):
            of_all = found.question(unfinished)
            if policy == "makespan":
                question = knowing_what_follows(question, of_all, after, running, until=until)
            tried = [in_time_for_what_follows(question, of_all, after), question]
        for each in tried:
            try:
                return joint(each, policy, running, until=until)
            except InfeasibleError:
                continue
    except LimitError:
        return None
    try:
        return joint(less_late(question, until)[0], policy, running, until=until)
    except (LimitError, InfeasibleError):
        return None


class _Unfolding:
    """The state of a course: the time, the rest of each job and of its start, and its cost so far."""

    def __init__(self, question: Asked, plan: Joint, before: Before) -> None:
        jobs = len(question.demands)
        self._asked, self._whole = question, plan.jobs
        self._missing = [len(set(first)) for first in before]  # how many jobs must end before each
        self._following = followers(before)
        self._counted = np.zeros(jobs, dtype=bool)  # jobs that have ended, and are not missing any more
        self._column = {offer_id: way for way, offer_id in enumerate(question.ids)}
        self._now_s, self._plans = 0.0, 0
        self._steps, self._unstarted = question.jobs.steps.copy(), np.ones(jobs)
        self._ready_s = np.array([np.inf if first else 0.0 for first in before])
        self._ends_s, self._cost_usd = np.full(jobs, np.inf), np.zeros(jobs)
        self._first: dict[int, JobPlan] = {}

    def there(self) -> Integers:
        """The jobs that can run now (their numbers)."""
        ended = np.isfinite(self._ends_s)
        for job in np.flatnonzero(ended & ~self._counted).tolist():
            for each in self._following[job]:
                self._missing[each] -= 1
                if self._missing[each] == 0:
                    self._ready_s[each] = self._now_s
        self._counted = ended
        return np.flatnonzero(np.isfinite(self._ready_s) & ~ended)

    def unfinished(self) -> Integers:
        """The jobs that have not ended."""
        return np.flatnonzero(~np.isfinite(self._ends_s))

    def has_deadlines(self, jobs: Integers) -> bool:
        """Whether any of these jobs has a deadline."""
        return bool(np.isfinite(self._asked.jobs.deadline_s[jobs]).any())

    def question(self, there: Integers) -> Asked:
        """The question that asks for a plan of these jobs as if they could all run now."""
        jobs, begins_s = self._asked.jobs, self._begins_s(there)
        due_s = jobs.deadline_s[there] + self._asked.begins_s[there] - self._now_s
        done = self._asked.jobs.steps[there] - self._steps[there]
        demands = [self._asked.demands[job] for job in there.tolist()]
        return replace(
            self._asked,
            jobs=replace(
                jobs,
                rate=jobs.rate[there],
                gpus=jobs.gpus[there],
                steps=self._steps[there],
                weight=jobs.weight[there],
                age_s=jobs.age_s[there] + self._now_s,
                alone_s=jobs.alone_s[there],
                deadline_s=due_s - begins_s,
                start_s=self._start_s(there) * self._unstarted[there, None],
            ),
            demands=tuple(
                replace(each, done_steps=each.done_steps + round(more)) if more else each
                for each, more in zip(demands, done.tolist(), strict=True)
            ),
            begins_s=begins_s,
            paid=self._asked.paid[there],
        )

    def advance(self, there: Integers, plan: Joint) -> bool:
        """Advance to the next ends according to this plan, but no further than it holds; False if nothing ends."""
        plans = plan.jobs
        for job, each in zip(there.tolist(), plans, strict=True):
            self._first.setdefault(job, each)
        rate, usd_per_h, start_usd = self._rates(there, plans)
        share = np.array([sum(part.share for part in each.parts) for each in plans])
        with np.errstate(divide="ignore", invalid="ignore"):
            begins_s = np.array([each.begins_s for each in plans])
            takes_s = np.where(self._steps[there] > 0, begins_s + self._steps[there] / rate, 0.0)
        if not np.isfinite(takes_s).any() and math.isinf(plan.holds_s):
            return False
        self._plans += 1
        ends_s = takes_s
        if math.isfinite(plan.holds_s):
            takes_s = np.where(abs(takes_s - plan.holds_s) <= AT_THE_END * plan.holds_s, plan.holds_s, takes_s)
            ends_s = np.where(takes_s <= plan.holds_s, takes_s, np.inf)
        step_s = self._step_s(ends_s, share) if np.isfinite(ends_s).any() else plan.holds_s
        begun_s = np.minimum(begins_s, step_s)
        with np.errstate(invalid="ignore"):
            started = self._unstarted[there] * np.where(begins_s > 0, begun_s / begins_s, share > 0)
        ran_s = np.where(rate > 0, np.minimum(step_s, takes_s) - begun_s, 0.0)
        self._cost_usd[there] += start_usd * started + usd_per_h * ran_s / 3600
        self._unstarted[there] -= started
        self._steps[there] -= rate * ran_s
        over = takes_s <= step_s
        self._steps[there[over]] = 0.0
        self._ends_s[there[over]] = self._now_s + takes_s[over]
        self._now_s += step_s
        return True

    def _step_s(self, takes_s: Floats, share: Floats) -> float:
        """How many seconds to advance: to the first end, or to a later one if little stays idle until then."""
        order = np.argsort(takes_s)
        ends_s, shares = takes_s[order], share[order]
        unfinished = np.count_nonzero(~np.isfinite(self._ends_s))
        together = min(math.ceil(unfinished / max(MANY - self._plans, 1)), np.count_nonzero(np.isfinite(ends_s)))
        at_s, left = ends_s[:together], np.cumsum(shares[:together])
        idle = at_s * left - np.cumsum(at_s * shares[:together])
        until_s = at_s[idle <= MOST_IDLE * at_s * shares.sum()].max(initial=ends_s[0])
        return float(ends_s[ends_s <= until_s * (1 + SAME_TIME)].max())

    def _rates(self, there: Integers, plans: Sequence[JobPlan]) -> tuple[Floats, Floats, Floats]:
        """(steps/s, dollars per hour, dollars of a whole start), each (jobs,).

        As in the plan (Collection.usd_per_h_started), a start is paid in each way in proportion to the steps done
        there.
        """
        rate, usd_per_h, start_usd = (np.zeros(len(there)) for _ in range(3))
        prices, starts_s = self._asked.jobs.usd_per_h, self._start_s(there)
        for number, (job, each) in enumerate(zip(there.tolist(), plans, strict=True)):
            rate[number] = each.steps_per_s
            ways = np.array([self._column[part.offer_id] for part in each.parts], dtype=np.int64)
            shares = np.array([part.share for part in each.parts])
            usd_per_h[number] = shares @ prices[job, ways]
            if self._steps[job] > 0 and ways.size:
                done = shares * self._asked.jobs.rate[job, ways]
                start_usd[number] = done @ (prices[job, ways] * starts_s[number, ways]) / done.sum() / 3600
        return rate, usd_per_h, start_usd

    def _begins_s(self, there: Integers) -> Floats:
        """(jobs,): the least time that is left of each start."""
        return self._asked.begins_s[there] * self._unstarted[there]

    def _start_s(self, there: Integers) -> Floats:
        """(jobs, ways): how long a whole start takes in seconds."""
        starts_s = self._asked.jobs.start_s
        return np.zeros_like(self._asked.jobs.rate[there]) if starts_s is None else starts_s[there]

    def course(self) -> Course:
        """The course so far. A job that has not ended costs what the plan of all jobs says."""
        found = []
        for job, whole in enumerate(self._whole):
            first, ends_s = self._first.get(job, whole), float(self._ends_s[job])
            cost_usd = float(self._cost_usd[job]) if math.isfinite(ends_s) else whole.cost_usd
            ready_s = float(self._ready_s[job])
            found.append(JobCourse(whole.job_id, first.parts, first.steps_per_s, ready_s, ends_s, cost_usd))
        return Course(tuple(found))
