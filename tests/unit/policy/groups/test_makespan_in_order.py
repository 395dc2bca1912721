"""The makespan of jobs in an order: the bound holds for any schedule, and the course is as good as the best schedule on
whole machines, which is found by trying all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.policy import Demand
from orchestrator.policy.groups.course import Course, course, judged
from orchestrator.policy.groups.order import Order, before_each, longest_chains, time_after
from orchestrator.policy.groups.planning import Joint, asked, joint
from tests.unit.policy.conftest import DecisionCase
from tests.unit.policy.test_group_planning import HOUR_STEPS, market_of, quota

HOUR_S = 3600.0


@pytest.fixture
def case() -> DecisionCase:
    """Machines of two kinds; a job's speed on `cheap` is 1."""
    case = DecisionCase(startup_s=0.0)
    case.offer("cheap", 1.0)
    case.offer("fast", 5.0, gpu="SIM-L")
    return case


def job(case: DecisionCase, name: str, hours: float, faster: float = 2.0, setup_s: float = 0.0) -> Demand:
    made = case.job(name, rates={"SIM-M": 1.0, "SIM-L": faster})
    return Demand(made, round(hours * HOUR_STEPS), setup_s=setup_s)


def ordered(jobs: Sequence[Demand], before: Sequence[Sequence[int]]) -> Order:
    return {one.job.id: tuple(jobs[each].job.id for each in first) for one, first in zip(jobs, before, strict=True)}


def planned(
    case: DecisionCase, jobs: Sequence[Demand], after: Order, cheap: int = 1, fast: int = 1
) -> tuple[Joint, Course, Joint]:
    """(the plan, its course, the plan as it is judged by that)."""
    question = asked(jobs, market_of(case, quota(cheap, "cheap"), quota(fast, "fast")), case.perf())
    plan = joint(question, "makespan", after=after)
    found = course(question, "makespan", plan, after=after)
    return plan, found, judged(question, plan, found, after)


def best_schedule(takes: Sequence[Sequence[float]], before: Sequence[Sequence[int]]) -> float:
    """The least makespan of all schedules in which each job has one machine until it ends. `takes`: by job and
    machine."""
    best = float("inf")

    def extend(ends: dict[int, float], free: tuple[float, ...]) -> None:
        nonlocal best
        if len(ends) == len(takes):
            best = min(best, max(ends.values()))
        for one in (each for each in range(len(takes)) if each not in ends and all(b in ends for b in before[each])):
            ready = max((ends[each] for each in before[one]), default=0.0)
            for at, since in enumerate(free):
                end = max(since, ready) + takes[one][at]
                if end < best:
                    extend({**ends, one: end}, (*free[:at], end, *free[at + 1 :]))

    extend({}, (0.0,) * len(takes[0]))
    return best


def test_the_jobs_of_the_longest_chain_get_the_faster_machine(case: DecisionCase) -> None:
    """The job alone takes no longer than the chain if it has the slow machine."""
    jobs = [job(case, "head", 2), job(case, "tail", 4), job(case, "alone", 3)]
    plan, found, _ = planned(case, jobs, ordered(jobs, [(), (0,), ()]))
    assert found.ends_s / HOUR_S == pytest.approx(3.0, rel=0.01)
    assert plan.bound / HOUR_S == pytest.approx(3.0, rel=0.01)
    assert found.jobs[0].ends_s / HOUR_S == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("seed", range(8))
def test_no_schedule_is_below_the_bound_and_the_course_is_as_good_as_the_best(case: DecisionCase, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(4):
        count, cheap = rng.randint(3, 5), rng.randint(1, 2)
        work = [(rng.choice([1, 2, 3, 4]), rng.choice([1.5, 2, 3])) for _ in range(count)]
        jobs = [job(case, f"job-{number}-{n}", hours, faster) for n, (hours, faster) in enumerate(work)]
        before = [tuple(rng.sample(range(n), min(n, rng.randint(0, 2)))) for n in range(count)]
        plan, found, certified = planned(case, jobs, ordered(jobs, before), cheap)
        best = best_schedule([[hours] * cheap + [hours / faster] for hours, faster in work], before) * HOUR_S
        assert plan.bound <= best * (1 + 1e-6)
        assert plan.bound * (1 - 1e-3) <= found.ends_s <= best * 1.04
        assert certified.value == pytest.approx(found.ends_s, rel=1e-3)
        assert certified.value <= certified.bound * (1 + certified.gap) * (1 + 1e-9)


def test_starts_of_a_chain_count(case: DecisionCase) -> None:
    """Four starts of half an hour; the four jobs have the fast machine one after the other."""
    jobs = [job(case, f"step-{n}", 2, setup_s=1800.0) for n in range(4)]
    plan, _, certified = planned(case, jobs, ordered(jobs, [(), (0,), (1,), (2,)]))
    assert plan.bound / HOUR_S == pytest.approx(6.0, rel=0.01)
    assert certified.gap < 0.01


def test_a_chain_beside_much_other_work_is_bounded_with_its_starts(case: DecisionCase) -> None:
    jobs = [job(case, f"step-{n}", 1, setup_s=1200.0) for n in range(3)]
    jobs += [job(case, f"other-{n}", 4) for n in range(4)]
    plan, found, _ = planned(case, jobs, ordered(jobs, [(), (0,), (1,), (), (), (), ()]))
    assert plan.bound / HOUR_S >= 19 / 3 * (1 - 1e-3)
    assert plan.bound <= found.ends_s * (1 + 1e-3)


def test_a_deadline_counts_beside_the_order(case: DecisionCase) -> None:
    head, tail, urgent = job(case, "head", 2), job(case, "tail", 8), job(case, "urgent", 4)
    urgent = replace(urgent, job=replace(urgent.job, spec=replace(urgent.job.spec, deadline_s=2.1 * HOUR_S)))
    _, found, _ = planned(case, [head, tail, urgent], {tail.job.id: (head.job.id,)})
    assert found.jobs[2].ends_s / HOUR_S <= 2.1 * 1.001


def test_the_bound_counts_that_a_job_with_a_deadline_leaves_its_machine_to_others(case: DecisionCase) -> None:
    """One after the other on one machine: four hours with a deadline in five, then four others."""
    urgent, other = job(case, "urgent", 4), job(case, "other", 4)
    urgent = replace(urgent, job=replace(urgent.job, spec=replace(urgent.job.spec, deadline_s=5 * HOUR_S)))
    _, found, certified = planned(case, [urgent, other], {}, fast=0)
    assert found.ends_s / HOUR_S == pytest.approx(8.0, rel=0.01)
    assert certified.bound / HOUR_S == pytest.approx(8.0, rel=0.01)
    assert certified.gap < 0.01


def test_the_bound_counts_the_start_of_a_job_alone_and_none_of_one_that_is_done(case: DecisionCase) -> None:
    urgent, done = job(case, "urgent", 2, setup_s=1800.0), job(case, "done", 1, setup_s=9 * HOUR_S)
    urgent = replace(urgent, job=replace(urgent.job, spec=replace(urgent.job.spec, deadline_s=5 * HOUR_S)))
    _, found, certified = planned(case, [urgent, replace(done, done_steps=HOUR_STEPS)], {}, cheap=0)
    assert found.ends_s / HOUR_S == pytest.approx(1.5, rel=0.01)
    assert certified.bound / HOUR_S == pytest.approx(1.5, rel=0.01)


def test_chains() -> None:
    """0 and 1 before 2 before 3; 4 alone. Jobs may come in any order."""
    before = before_each("abcde", {"c": ("a", "b", "gone"), "d": ("c",)})
    takes = np.array([1.0, 5.0, 2.0, 3.0, 4.0])
    assert longest_chains(before, takes) == {3: (10.0, (1, 2, 3)), 4: (4.0, (4,))}
    assert time_after(before, takes).tolist() == [5.0, 5.0, 3.0, 0.0, 0.0]
    assert longest_chains(((1,), ()), np.array([1.0, 2.0])) == {0: (3.0, (1, 0))}
