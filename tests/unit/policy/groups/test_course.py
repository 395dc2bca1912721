"""The course of a joint plan: what jobs leave is divided among the others, and jobs start after those before them."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from itertools import pairwise
from types import FrameType

import pytest

from orchestrator.model import GROUP_POLICIES, GroupPolicy
from orchestrator.policy import Demand
from orchestrator.policy.groups import course as course_module
from orchestrator.policy.groups.course import Course, course
from orchestrator.policy.groups.order import Order
from orchestrator.policy.groups.planning import Asked, Joint, asked, joint
from orchestrator.policy.groups.time_limit import TimeLimit
from providers.base import Quota
from tests.unit.policy.conftest import DecisionCase
from tests.unit.policy.test_group_planning import HOUR_STEPS, job, market_of, quota

HOUR_S = 3600.0


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase(startup_s=0.0)


def unfolded(
    case: DecisionCase,
    jobs: list[Demand],
    *quotas: Quota,
    policy: GroupPolicy = "cheapest",
    after: Order | None = None,
    until: TimeLimit | None = None,
) -> Course:
    question = asked(jobs, market_of(case, *quotas), case.perf())
    plan = joint(question, policy, after=after or {})
    return course(question, policy, plan, after=after or {}, until=until)


def hours(case: DecisionCase, *each: float, **spec: object) -> list[Demand]:
    """Jobs that take so long on the offer `cheap`."""
    return [job(case, number, steps=round(steps * HOUR_STEPS), **spec) for number, steps in enumerate(each)]


def ids(jobs: list[Demand]) -> list[str]:
    return [each.job.id for each in jobs]


def ends_h(found: Course) -> list[float]:
    return [each.ends_s / HOUR_S for each in found.jobs]


def test_where_nothing_binds_each_job_ends_as_planned(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    found = unfolded(case, hours(case, 1, 3))
    assert ends_h(found) == pytest.approx([1, 3], rel=0.01)
    assert [each.ready_s for each in found.jobs] == [0, 0]


def test_where_nothing_binds_a_job_after_others_starts_when_the_last_ends(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    jobs = hours(case, 1, 3, 2)
    one, two, three = ids(jobs)
    found = unfolded(case, jobs, after={three: (one, two)})
    assert ends_h(found) == pytest.approx([1, 3, 5], rel=0.01)
    assert found.jobs[2].ready_s == pytest.approx(3 * HOUR_S, rel=0.01)


def test_what_a_job_leaves_is_divided_among_the_others(case: DecisionCase) -> None:
    """Half a machine each for 2 h; then the longer one has all of it."""
    case.offer("cheap", 1.0)
    found = unfolded(case, hours(case, 1, 3), quota(1, "cheap"), policy="max-min-fairness")
    assert ends_h(found) == pytest.approx([2, 4], rel=0.01)
    assert found.cost_usd == pytest.approx(4.0, rel=0.02)


def test_jobs_that_end_at_the_same_time_are_planned_once(case: DecisionCase, monkeypatch: pytest.MonkeyPatch) -> None:
    case.offer("cheap", 1.0)
    jobs = hours(case, *[1.0] * 50, 2.0)
    plans = list[int]()
    solved = joint

    def counted(question: Asked, *args: object, **named: object) -> Joint:
        plans.append(len(question.demands))
        return solved(question, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(course_module, "joint", counted)
    unfolded(case, jobs, quota(10, "cheap"), policy="max-min-fairness", after={jobs[-1].job.id: ids(jobs)[:-1]})
    assert plans == [50, 1]


def test_the_work_for_a_long_chain_does_not_grow_with_its_square(case: DecisionCase) -> None:
    """A chain of 900 jobs took 25 s: each job was considered again at each end."""

    def calls(length: int) -> int:
        made = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal made
            made += event == "call"

        jobs = hours(case, *[1.0] * length)
        chain = {after.job.id: (before.job.id,) for before, after in pairwise(jobs)}
        sys.setprofile(count)
        try:
            found = unfolded(case, jobs, quota(1, "cheap"), after=chain)
        finally:
            sys.setprofile(None)
        assert ends_h(found) == pytest.approx(range(1, length + 1), rel=0.01)
        return made

    case.offer("cheap", 1.0)
    assert calls(320) < 4.5 * calls(80)


def test_ends_that_differ_by_the_precision_of_the_solver_are_one(case: DecisionCase) -> None:
    """Else what is left of some, hardly anything, waits for the end of the job that comes next."""
    case.offer("cheap", 1.0)
    case.offer("cheaper", 0.7, gpu="SIM-L")
    rates = {"SIM-M": 0.5631, "SIM-L": 0.205}
    jobs = [job(case, n, steps=200 if n in (0, 5) else 100, rates=rates) for n in range(6)]
    first, last = jobs[0].job.id, jobs[5].job.id
    for limit in (1, 2):
        quotas = (quota(limit, "cheap"), replace(quota(0, "cheaper"), name="none"))
        found = unfolded(case, jobs, *quotas, after={last: (first,)})
        *together, _ = ends_h(found)
        assert max(together) == pytest.approx(min(together), rel=0.01)
        assert found.ends_s == pytest.approx(max(together) * HOUR_S + 200 / 0.5631, rel=0.01)


def test_starts_take_machines_too(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    jobs = [replace(each, setup_s=600.0) for each in hours(case, 1, 1, 1, 1)]
    found = unfolded(case, jobs, quota(1, "cheap"))
    assert ends_h(found)[-1] == pytest.approx(4 + 4 / 6, rel=0.01)
    assert found.cost_usd == pytest.approx(4 + 4 / 6, rel=0.01)
    *_, last = unfolded(case, jobs, quota(1, "cheap"), after={jobs[3].job.id: ids(jobs[:3])}).jobs
    assert last.ready_s / HOUR_S == pytest.approx(3.5, rel=0.01)
    assert last.ends_s / HOUR_S == pytest.approx(4 + 4 / 6, rel=0.01)


def test_a_job_that_is_last_has_all_machines_to_itself(case: DecisionCase) -> None:
    """100 jobs of one hour share 10 machines for 10 h; the job after them does not share."""
    case.offer("cheap", 1.0)
    jobs = hours(case, *[1.0] * 101)
    *sweep, last = ids(jobs)
    found = unfolded(case, jobs, quota(10, "cheap"), after={last: sweep})
    assert ends_h(found)[-1] == pytest.approx(11.0, rel=0.01)
    assert found.jobs[-1].parts[0].share == pytest.approx(1.0)
    assert found.cost_usd == pytest.approx(101.0, rel=0.02)


@pytest.mark.parametrize("policy", ["max-throughput", "first-in-first-out", "shortest-job-first"])
def test_a_job_without_a_share_now_gets_one_when_others_have_ended(case: DecisionCase, policy: GroupPolicy) -> None:
    case.offer("cheap", 1.0)
    found = unfolded(case, hours(case, 1, 1, 1), quota(1, "cheap"), policy=policy)
    assert max(ends_h(found)) == pytest.approx(3.0, rel=0.02)
    assert found.cost_usd == pytest.approx(3.0, rel=0.02)


def test_a_deadline_is_kept_also_when_a_job_starts_late(case: DecisionCase) -> None:
    """Of two hours, the job has one left when it starts, so it takes the faster and more expensive machine."""
    case.offer("cheap", 1.0)
    case.offer("fast", 5.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 2.0}
    first = Demand(case.job("first", rates=rates), HOUR_STEPS)
    others = [Demand(case.job(f"other-{n}", rates=rates), 9 * HOUR_STEPS) for n in range(2)]
    last = Demand(case.job("last", rates=rates, deadline_s=2.6 * HOUR_S), 2 * HOUR_STEPS)
    jobs = [first, *others, last]
    found = unfolded(case, jobs, quota(3, "cheap"), quota(1, "fast"), after={last.job.id: (first.job.id,)})
    assert ends_h(found)[-1] <= 2.6 * 1.001


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_job_hurries_if_one_that_comes_after_it_has_a_deadline(case: DecisionCase, policy: GroupPolicy) -> None:
    """Otherwise it would share the machine with the other job, or be after it, and the last would be late."""
    case.offer("cheap", 1.0)
    jobs = [*hours(case, 1, 1), job(case, 2, deadline_s=2.1 * HOUR_S)]
    _, first, last = ids(jobs)
    found = unfolded(case, jobs, quota(1, "cheap"), policy=policy, after={last: (first,)})
    assert ends_h(found)[2] <= 2.1 * 1.001
    assert max(ends_h(found)) == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_deadline_of_its_own_comes_before_that_of_a_job_after_another(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    """Not both can be kept."""
    case.offer("cheap", 1.0)
    jobs = [job(case, 0, deadline_s=1.1 * HOUR_S), job(case, 1), job(case, 2, deadline_s=2.1 * HOUR_S)]
    _, first, last = ids(jobs)
    found = unfolded(case, jobs, quota(1, "cheap"), policy=policy, after={last: (first,)})
    assert ends_h(found)[0] <= 1.1 * 1.001
    assert max(ends_h(found)) == pytest.approx(3.0, rel=0.02)


def test_a_deadline_that_cannot_be_kept_after_the_others_is_late(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    jobs = [*hours(case, 2, 2), job(case, 2, deadline_s=1.5 * HOUR_S)]
    one, two, last = ids(jobs)
    found = unfolded(case, jobs, quota(2, "cheap"), after={last: (one, two)})
    assert ends_h(found)[-1] == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_no_work_is_lost_and_nobody_starts_too_early(case: DecisionCase, policy: GroupPolicy) -> None:
    """On machines of one kind the last job ends no earlier than all work takes, and no earlier than the longest chain;
    as soon as there are fewer jobs than machines, each takes as long as alone."""
    case.offer("cheap", 1.0)
    rng = random.Random(7)
    for _ in range(5):
        count, machines = rng.randint(2, 12), rng.randint(1, 4)
        takes = [rng.choice([0.5, 1.0, 2.5]) for _ in range(count)]
        jobs = hours(case, *takes)
        of = ids(jobs)
        after = {of[n]: tuple(rng.sample(of[:n], min(n, rng.randint(0, 2)))) for n in range(count)}
        found = unfolded(case, jobs, quota(machines, "cheap"), policy=policy, after=after)
        by_id = {each.job_id: each for each in found.jobs}
        for each, alone_h in zip(found.jobs, takes, strict=True):
            before = [by_id[job_id].ends_s for job_id in after[each.job_id]]
            assert each.ready_s >= max(before, default=0.0) * (1 - 1e-6)
            assert each.ends_s >= each.ready_s + alone_h * HOUR_S * (1 - 1e-3)
            assert each.cost_usd == pytest.approx(alone_h, rel=0.02)
        assert found.ends_s >= sum(takes) / machines * HOUR_S * (1 - 1e-3)
        longest = dict[str, float]()
        for job_id, alone_h in zip(of, takes, strict=True):
            longest[job_id] = alone_h + max((longest[each] for each in after[job_id]), default=0.0)
        graham = (sum(takes) + (machines - 1) * max(longest.values())) / machines  # of any order that leaves none idle
        assert found.ends_s <= graham * HOUR_S * 1.02 or policy in ("cheapest", "max-throughput")


def test_many_different_ends_are_taken_together_at_little_cost(
    case: DecisionCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.offer("cheap", 1.0)
    rng = random.Random(3)
    jobs = hours(case, *[rng.uniform(0.5, 8) for _ in range(100)])
    of = ids(jobs)
    after = {of[n]: (of[n - 50],) for n in range(50, 100)}
    for policy in ("max-min-fairness", "first-in-first-out"):
        monkeypatch.setattr(course_module, "MANY", 20)
        rough = unfolded(case, jobs, quota(10, "cheap"), policy=policy, after=after)
        monkeypatch.setattr(course_module, "MANY", 10_000)
        exact = unfolded(case, jobs, quota(10, "cheap"), policy=policy, after=after)
        assert exact.ends_s * (1 - 1e-6) <= rough.ends_s <= exact.ends_s * (1 + course_module.MOST_IDLE)


def test_what_the_solver_has_no_time_for_has_no_known_end(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    jobs = hours(case, 1, 1, 1)
    *_, last = ids(jobs)
    found = unfolded(case, jobs, quota(1, "cheap"), after={last: ids(jobs)[:2]}, until=TimeLimit(0.0))
    assert math.isinf(found.ends_s)
    assert found.cost_usd == pytest.approx(3.0, rel=0.02)
