"""Jobs with different deadlines take turns: what is possible one after the other is planned, and nothing else."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.model import GROUP_POLICIES, GroupPolicy, Resources
from orchestrator.policy import Demand, Running
from orchestrator.policy.groups import in_turns as module
from orchestrator.policy.groups.collection import Collection, Supply, collection
from orchestrator.policy.groups.collection import Quota as Limit
from orchestrator.policy.groups.course import Course, by_course, course, judged
from orchestrator.policy.groups.planning import Joint, asked, joint, less_late
from orchestrator.policy.groups.remedies import find_remedies
from orchestrator.policy.groups.solving import cheapest
from orchestrator.policy.groups.time_limit import TimeLimit
from providers.base import Quota
from tests.unit.policy.conftest import DecisionCase
from tests.unit.policy.test_group_planning import HOUR_STEPS, job, market_of, quota

H = 3600.0
Work = Sequence[tuple[float, float | None]]
"""The hours that each job takes on the machine `cheap`, and its deadline in hours."""


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase(startup_s=0.0)


def demands(case: DecisionCase, work: Work, rates: dict[str, float] | None = None) -> list[Demand]:
    return [
        job(
            case,
            number,
            steps=round(hours * HOUR_STEPS),
            **({} if due_h is None else {"deadline_s": due_h * H}),
            **({} if rates is None else {"rates": rates}),
        )
        for number, (hours, due_h) in enumerate(work)
    ]


def planned(
    case: DecisionCase, jobs: list[Demand], *quotas: Quota, policy: GroupPolicy = "cheapest"
) -> tuple[Joint, Course]:
    question = asked(jobs, market_of(case, *quotas), case.perf())
    plan = joint(question, policy)
    return plan, course(question, policy, plan)


def late_h(work: Work, unfolded: Course) -> float:
    """By how many hours the latest job is late."""
    return max(
        (each.ends_s / H - due_h for each, (_, due_h) in zip(unfolded.jobs, work, strict=True) if due_h is not None),
        default=0.0,
    )


def spare_h(work: Work) -> float:
    """How many hours all jobs could start later on one machine, nearest deadline first; this order is the best."""
    now, spare = 0.0, float("inf")
    for hours, due_h in sorted((each for each in work if each[1] is not None), key=lambda each: each[1] or 0.0):
        now += hours
        spare = min(spare, (due_h or 0.0) - now)
    return spare


def drawn(rng: random.Random, *, ease: float) -> list[tuple[float, float | None]]:
    """Jobs for one machine. With an `ease` of 1, there is about as much work as time. Each would be on time alone."""
    now, found = 0.0, list[tuple[float, float | None]]()
    for _ in range(rng.randint(2, 6)):
        hours = rng.choice([0.25, 0.5, 1.0, 3.0])
        now += hours
        found.append((hours, max(now * ease * rng.uniform(0.9, 1.4), hours * 1.02)))
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_two_jobs_on_one_machine_are_on_time_one_after_the_other(case: DecisionCase, policy: GroupPolicy) -> None:
    case.offer("cheap", 1.0)
    work = [(1.0, 1.05), (1.0, 2.1)]
    plan, unfolded = planned(case, demands(case, work), quota(1, "cheap"), policy=policy)
    assert late_h(work, unfolded) <= 1e-3
    assert unfolded.cost_usd == pytest.approx(2.0, rel=0.01)
    assert sum(part.share for each in plan.jobs for part in each.parts) <= 1 + 1e-6


def test_the_cheap_machine_is_used_by_one_job_after_the_other(case: DecisionCase) -> None:
    """In constant parts, one of them would have to use an expensive machine for most of its time."""
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    work = [(1.0, 1.05), (1.0, 1.9)]
    plan, unfolded = planned(case, demands(case, work), quota(1, "cheap"))
    assert plan.value == pytest.approx(1.9 + 0.1 * 5, rel=1e-3)
    assert plan.gap < 1e-6
    assert unfolded.cost_usd == pytest.approx(plan.value, rel=1e-3)
    assert plan.cost_usd == pytest.approx(plan.value, rel=1e-3)
    assert late_h(work, unfolded) <= 1e-3


def test_jobs_without_a_deadline_use_what_is_left(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    work = [(1.0, 1.05), (1.0, 2.1), (1.0, None)]
    plan, unfolded = planned(case, demands(case, work), quota(1, "cheap"))
    assert plan.value == pytest.approx(3.0, rel=1e-3)
    assert unfolded.ends_s == pytest.approx(3 * H, rel=1e-2)
    assert late_h(work, unfolded) <= 1e-3


@pytest.mark.parametrize("short_due_h", [None, 99.0, 100.0])
@pytest.mark.parametrize("limited", [True, False])
def test_a_job_with_a_far_deadline_is_not_hurried_by_others(
    case: DecisionCase, short_due_h: float | None, *, limited: bool
) -> None:
    """It has the time until its own deadline, however soon the other jobs end."""
    case.offer("cheap", 1.0)
    case.offer("fast", 100.0, gpu="SIM-L")
    rates = {"SIM-M": 1.0, "SIM-L": 50.0}
    jobs = demands(case, [(50.0, 100.0), (1.0, short_due_h)], rates)
    plan, unfolded = planned(case, jobs, *([quota(1, "cheap")] if limited else []))
    assert plan.value == pytest.approx(51.0, rel=1e-2)
    assert plan.bound == pytest.approx(51.0, rel=1e-2)
    assert unfolded.cost_usd == pytest.approx(51.0, rel=1e-2)


def test_with_one_deadline_for_all_the_cheap_machine_is_used_until_then(case: DecisionCase) -> None:
    """Not only for as long as the longest of the jobs takes."""
    case.offer("cheap", 1.0)
    case.offer("fast", 5.0, gpu="SIM-L")
    jobs = demands(case, [(2.0, 4.0), (3.0, 4.0)], {"SIM-M": 1.0, "SIM-L": 2.0})
    plan, _ = planned(case, jobs, quota(1, "cheap"))
    assert plan.value == pytest.approx(4.0 + 0.5 * 5.0, rel=1e-2)


def test_with_one_deadline_for_all_shares_hold_until_the_first_end(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    case.offer("dear", 5.0)
    jobs = [replace(each, setup_s=60.0 * n) for n, each in enumerate(demands(case, [(1.0, 2.0)] * 3))]
    plan, _ = planned(case, jobs, quota(1, "cheap"))
    assert plan.holds_s == float("inf")


def test_machines_of_which_all_are_needed_at_first_leave_nothing_to_others(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    for policy in GROUP_POLICIES:
        work = [(1.0, 1.001), (1.0, 2.001), (1.0, None)]
        plan, unfolded = planned(case, demands(case, work), quota(1, "cheap"), policy=policy)
        assert late_h(work, unfolded) <= 1e-3, policy
        assert unfolded.ends_s == pytest.approx(3 * H, rel=1e-2), policy
        assert np.isfinite([plan.value, plan.bound, plan.gap]).all(), policy


@pytest.mark.parametrize("policy", GROUP_POLICIES)
@pytest.mark.parametrize("slack", [0.0, 1e-9, 1e-8, 1e-7, 1e-6])
def test_a_job_without_a_deadline_waits_for_one_that_needs_all_of_its_time(
    case: DecisionCase, policy: GroupPolicy, slack: float
) -> None:
    case.offer("cheap", 1.0)
    work = [(1.0, 1.0 + slack), (1.0, None)]
    _, unfolded = planned(case, demands(case, work), quota(1, "cheap"), policy=policy)
    assert late_h(work, unfolded) <= 1e-3
    assert unfolded.ends_s == pytest.approx(2 * H, rel=1e-2)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_possible_on_one_machine_is_planned_and_nothing_else(case: DecisionCase, seed: int) -> None:
    rng = random.Random(seed)
    work = drawn(rng, ease=rng.choice([0.9, 1.0, 1.1]))
    policy = rng.choice(GROUP_POLICIES)
    case.offer("cheap", 1.0)
    start_h = rng.choice([0.0, 0.05])
    jobs = [replace(each, setup_s=start_h * H) for each in demands(case, work)]
    spare = spare_h([(hours + start_h, due_h) for hours, due_h in work])
    if spare < -1e-3:
        with pytest.raises(InfeasibleError):
            planned(case, jobs, quota(1, "cheap"), policy=policy)
    elif spare > 5e-3:  # speeds are estimates, to about 0.03 %
        _, unfolded = planned(case, jobs, quota(1, "cheap"), policy=policy)
        assert late_h(work, unfolded) <= 1e-3
        assert unfolded.cost_usd == pytest.approx(sum(hours + start_h for hours, _ in work), rel=5e-3)


@pytest.mark.parametrize("seed", range(40))
def test_no_whole_machine_plan_costs_less_than_is_certified(case: DecisionCase, seed: int) -> None:
    """Of each job, all is done on the cheap machine, in the order of the deadlines, or all on expensive ones."""
    rng = random.Random(seed)
    work, expensive = drawn(rng, ease=rng.choice([0.8, 1.1])), 5.0
    case.offer("cheap", 1.0)
    case.offer("dear", expensive, gpu="SIM-L")
    fast = rng.choice([1.5, 3.0])
    jobs = demands(case, work, {"SIM-M": 1.0, "SIM-L": fast})
    costs = []
    for which in itertools.product([True, False], repeat=len(work)):
        on_cheap = [each for each, here in zip(work, which, strict=True) if here]
        others = [each for each, here in zip(work, which, strict=True) if not here]
        if spare_h(on_cheap) > 5e-3 and all(hours / fast * 1.003 < (due_h or 0.0) for hours, due_h in others):
            costs.append(sum(h for h, _ in on_cheap) + sum(h for h, _ in others) / fast * expensive)
    try:
        plan, unfolded = planned(case, jobs, quota(1, "cheap"))
    except InfeasibleError:
        assert not costs
        return
    assert plan.bound <= plan.value * (1 + 1e-9)
    assert plan.gap < 1e-5
    assert plan.value <= min(costs, default=float("inf")) * (1 + 5e-3)
    assert unfolded.cost_usd >= plan.bound * (1 - 1e-3)
    assert unfolded.cost_usd == pytest.approx(plan.value, rel=1e-2)
    assert late_h(work, unfolded) <= 1e-3


@pytest.mark.parametrize("policy", ["cheapest", "max-min-fairness"])
def test_many_jobs_without_time_to_spare_are_all_on_time(case: DecisionCase, policy: GroupPolicy) -> None:
    """Rounding errors do not add up from one plan to the next."""
    rng = random.Random(1)
    rates = {f"GPU-{n}": 1.0 for n in range(2)}
    for number, gpu in enumerate(rates):
        case.offer(f"type-{number}", 1.0 + number, gpu=gpu)
    quotas = [replace(quota(1, f"type-{number}"), name=f"quota {number}") for number in range(2)]
    now_h, work = 0.0, list[tuple[float, float | None]]()
    for _ in range(45):
        now_h += (hours := rng.uniform(0.5, 5.0))
        work.append((hours, now_h / 2 * 1.001 + 3))
    plan, unfolded = planned(case, demands(case, work, rates), *quotas, policy=policy)
    assert late_h(work, unfolded) * H <= 1
    assert policy != "cheapest" or unfolded.cost_usd == pytest.approx(plan.value, rel=1e-5)


def test_only_those_jobs_are_late_that_have_to_be(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    with pytest.raises(
        InfeasibleError, match=r"machines in eu-1\): job-1 \(deadline in 1\.9 h, 2 h with the remaining"
    ) as error:
        planned(case, demands(case, [(1.0, 1.05), (1.0, 1.9)]), quota(1, "cheap"))
    assert "job-0" not in str(error.value)


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_a_late_job_ends_as_soon_as_it_can_however_far_the_other_deadlines_are(
    case: DecisionCase, policy: GroupPolicy
) -> None:
    case.offer("cheap", 1.0)
    jobs = demands(case, [(10.0, 1000.0), (5.25, 10.0), (5.25, 10.0)])
    with pytest.raises(InfeasibleError, match=r"\): job-\d \(deadline in 10 h, 10\.5 h with the remaining quota\)"):
        planned(case, jobs, quota(1, "cheap"), policy=policy)
    question, _ = less_late(asked(jobs, market_of(case, quota(1, "cheap")), case.perf()), TimeLimit(20.0))
    unfolded = course(question, policy, joint(question, policy))
    assert max(each.ends_s for each in unfolded.jobs[1:]) == pytest.approx(10.5 * H, rel=1e-3)


@pytest.mark.parametrize("seed", range(30))
def test_no_late_job_ends_later_than_one_job_after_the_other_takes(case: DecisionCase, seed: int) -> None:
    """One more job has a deadline in a year. It waits for all others."""
    work = drawn(random.Random(seed), ease=0.75)
    case.offer("cheap", 1.0)
    jobs = demands(case, [*work, (1.0, 8760.0)])
    question, _ = less_late(asked(jobs, market_of(case, quota(1, "cheap")), case.perf()), TimeLimit(20.0))
    latest_h = max(sum(hours for hours, _ in work), *(due_h or 0.0 for _, due_h in work))
    assert question.jobs.deadline_s[:-1].max() / H <= latest_h * 1.01
    joint(question, "cheapest")


def test_a_job_that_runs_and_needs_all_of_its_time_is_not_late_by_a_rounding_error(case: DecisionCase) -> None:
    """Where a job runs, it counts as a little faster, so that ties are broken."""
    here = case.offer("cheap", 1.0)
    case.offer("dear", 2.0)
    jobs = demands(case, [(2.0, 4.0), (5.0, 7.0001)])
    running = {jobs[1].job.id: Running(here, case.now)}
    question = asked(
        jobs, market_of(case, quota(1, "cheap"), replace(quota(1, "dear"), name="dear")), case.perf(), running
    )
    exactly = replace(question, jobs=replace(question.jobs, deadline_s=np.array([2.0, 5.0]) * H * (1 + 1e-6)))
    steps = np.array([2.0, 5.0 * (1 + 8e-6)]) * H * question.jobs.rate.max(axis=1)
    exactly = replace(exactly, jobs=replace(exactly.jobs, steps=steps))
    unfolded = course(exactly, "cheapest", joint(exactly, "cheapest", running), running)
    assert [each.ends_s / H for each in unfolded.jobs] == pytest.approx([2.0, 5.0], rel=1e-4)


@pytest.mark.parametrize("policy", GROUP_POLICIES)
@pytest.mark.parametrize("in_order", [True, False])
def test_jobs_that_are_done_need_nothing_even_after_their_deadlines(
    case: DecisionCase, policy: GroupPolicy, *, in_order: bool
) -> None:
    case.offer("cheap", 1.0)
    jobs = [replace(each, done_steps=HOUR_STEPS) for each in demands(case, [(1.0, 0.0), (1.0, 2.0), (1.0, None)])]
    after = {jobs[2].job.id: (jobs[0].job.id,)} if in_order else {}
    question = asked(jobs, market_of(case, quota(1, "cheap")), case.perf())
    plan = joint(question, policy, after=after)
    unfolded = course(question, policy, plan, after=after)
    assert [each.ends_s for each in unfolded.jobs] == [0.0, 0.0, 0.0]
    if by_course(question, policy, after):
        plan = judged(question, plan, unfolded, after)
        assert (plan.value, plan.gap) == (0.0, 0.0)


@pytest.mark.parametrize("due_h", [None, 9.0])
def test_a_job_goes_on_where_the_quota_is_now_too_small_for_it(case: DecisionCase, due_h: float | None) -> None:
    case.offer("cheaper", 0.5)
    here = case.offer("cheap", 1.0)
    work = [(1.0, None), (1.0, due_h)]
    jobs = demands(case, work)
    large = replace(jobs[0].job, spec=replace(jobs[0].job.spec, resources=Resources(nodes=2)))
    jobs[0] = replace(jobs[0], job=large)
    running = {large.id: Running(here, case.now)}
    question = asked(jobs, market_of(case, quota(1, "cheap", "cheaper")), case.perf(), running)
    plan = joint(question, "cheapest", running)
    assert np.isfinite([plan.value, plan.bound, *(each.cost_usd for each in plan.jobs)]).all()
    assert plan.gap < 1e-5


@pytest.mark.parametrize("seed", range(20))
def test_what_would_help_is_enough_and_no_more(case: DecisionCase, seed: int) -> None:
    rng = random.Random(seed)
    work, policy = drawn(rng, ease=0.75), rng.choice(GROUP_POLICIES)
    case.offer("cheap", 1.0)
    jobs, there = demands(case, work), market_of(case, quota(1, "cheap"))
    spare = spare_h(work)
    if spare > -0.05:
        return
    found = find_remedies(jobs, there, case.perf(), policy)
    assert found.later
    assert not found.delay_unknown
    for later in found.later:

        def delayed(delay_s: float, names: tuple[str, ...] = later.jobs) -> Work:
            return [
                (hours, (due_h or 0.0) + delay_s / H if f"job-{n}" in names else due_h)
                for n, (hours, due_h) in enumerate(work)
            ]

        assert spare_h(delayed(later.delay_s)) >= -5e-3
        assert spare_h(delayed(later.delay_s - 400.0)) < 5e-3
        planned(case, demands(case, delayed(later.delay_s)), quota(1, "cheap"), policy=policy)
    for raised in found.raised:
        planned(case, jobs, quota(raised.limit, "cheap"), policy=policy)
        with pytest.raises(InfeasibleError):
            planned(case, jobs, quota(raised.limit - 1, "cheap"), policy=policy)


@pytest.mark.parametrize("periods", [12, 20])
def test_with_fewer_periods_than_deadlines_plans_are_possible_and_bounds_hold(
    monkeypatch: pytest.MonkeyPatch, periods: int
) -> None:
    rng = np.random.default_rng(5)
    jobs, ways = 30, 3
    rate, steps = rng.uniform(0.5, 3, (jobs, ways)), rng.uniform(1, 5, jobs) * H
    hurried = collection(
        rate,
        Supply(np.full(ways, np.inf), np.array([1.0, 2.0, 20.0])),
        steps=steps,
        deadline_s=np.cumsum(steps / rate.max(axis=1)) * 0.7 + 4 * H,
        quotas=(Limit("first", np.array([0]), 1.0), Limit("second", np.array([1]), 1.0)),
        start_s=np.zeros((jobs, ways)),
    )
    exact, _ = cheapest(hurried, TimeLimit(20.0))
    monkeypatch.setattr(module, "FEWEST", periods)
    monkeypatch.setattr(module, "MOST_COLUMNS", 0)
    rough, turns = cheapest(hurried, TimeLimit(20.0))
    assert turns is not None
    best, certificate = exact.certificates[0].value, rough.certificates[0]
    assert exact.certificates[0].gap < 1e-5
    assert certificate.bound <= best * (1 + 1e-6)
    assert certificate.value >= best * (1 - 1e-6)
    assert 0 < certificate.gap < 0.2


def chain(jobs: int, apart_h: float) -> Collection:
    """Jobs of an hour each on one machine, each due `apart_h` after the one before it."""
    return collection(
        np.ones((jobs, 1)),
        Supply(np.full(1, np.inf), np.ones(1)),
        steps=np.full(jobs, H),
        deadline_s=np.arange(1, jobs + 1) * apart_h * H,
        quotas=(Limit("machines", np.array([0]), 1.0),),
        start_s=np.zeros((jobs, 1)),
    )


def test_what_too_few_periods_do_not_tell_is_not_refused_as_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = chain(30, 1.0005)
    assert cheapest(jobs, TimeLimit(20.0))[0].certificates[0].value == pytest.approx(30.0)
    monkeypatch.setattr(module, "MOST_COLUMNS", 0)
    with pytest.raises(LimitError):
        cheapest(jobs, TimeLimit(20.0))
    with pytest.raises(LimitError):
        module.possible(jobs, TimeLimit(20.0))
    assert module.possible(chain(30, 1.5), TimeLimit(20.0))
    for slow in (cheapest, module.due_turns):
        with pytest.raises(InfeasibleError):
            slow(chain(30, 0.8), TimeLimit(20.0))


class OneRun(TimeLimit):
    """Is up after one run of the solver."""

    def spend(self, seconds: float) -> None:
        super().spend(max(seconds, self.seconds))


def test_without_time_for_turns_the_parts_are_constant_and_the_bound_is_simple() -> None:
    hurried = collection(
        np.ones((2, 2)),
        Supply(np.full(2, np.inf), np.array([1.0, 2.0])),
        steps=np.full(2, H),
        deadline_s=np.array([1.05, 2.1]) * H,
        quotas=(Limit("cheap", np.array([0]), 1.0),),
        start_s=np.zeros((2, 2)),
    )
    found, turns = cheapest(hurried, OneRun(20.0))
    assert turns is None
    assert not found.in_time
    assert found.certificates[0].bound == pytest.approx(2.0)
    assert found.certificates[0].value > 2.2


def test_a_second_beside_weeks_is_not_lost_to_the_rounding_errors_of_the_solver() -> None:
    """One deadline has passed, so the first period is a second long."""
    hurried = collection(
        np.array(
            [
                [1.1300139807003038, 0.5658062014977262, 0.28310332777201064],
                [1.9986047360243697, 0.9999166736105325, 0.4999791675346861],
                [2.0, 1.0, 0.5],
                [1.9999166701387443, 0.9999791671006854, 0.4999947917209196],
            ]
        ),
        Supply(np.full(3, np.inf), np.array([0.5, 2.0, 5.0])),
        gpus=np.array([2.0, 1.0, 1.0, 1.0]),
        steps=np.array([0.72, 0.72, 0.72, 2.88]) * 1e6,
        deadline_s=np.array([232155.656, 232155.656, -3600.0, 1725882.618]),
        quotas=(Limit("first", np.array([0]), 1.0), Limit("second", np.array([1]), 2.0)),
    )
    found = module.least_late(hurried, TimeLimit(20.0))
    assert found.late.tolist() == [True, True, True, False]
    assert module.possible(replace(hurried, deadline_s=found.ends_s * (1 + 1e-6)), TimeLimit(20.0))


def test_a_refusal_has_as_many_digits_as_it_takes_to_tell_the_times_apart(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    question = asked(demands(case, [(5.0, 10.11), (5.13, 10.12)]), market_of(case, quota(1, "cheap")), case.perf())
    with pytest.raises(InfeasibleError, match=r"deadline in 10.12 h, 10.13 h with the remaining quota"):
        joint(question, "cheapest")


class Counted(TimeLimit):
    """Counts the runs of the solver."""

    runs = 0

    def spend(self, seconds: float) -> None:
        self.runs += 1
        super().spend(seconds)


def test_finding_out_who_would_be_late_counts_in_the_time_limit(case: DecisionCase) -> None:
    case.offer("cheap", 1.0)
    question = asked(demands(case, [(5.0, 6.0), (5.0, 7.0)]), market_of(case, quota(1, "cheap")), case.perf())
    refused, solved = Counted(20.0), Counted(20.0)
    with pytest.raises(InfeasibleError, match="not all deadlines can be met"):
        joint(question, "cheapest", until=refused)
    with pytest.raises(InfeasibleError):
        cheapest(question.jobs.with_starts(question.begins_s), solved)
    assert refused.runs > solved.runs
