"""When jobs have to end, so that those after them can be on time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from orchestrator.policy import Demand, MoveLimits, Running
from orchestrator.policy.groups.following import due_for_what_follows, hurrying
from orchestrator.policy.needed_budget import needed_budgets
from providers.money import usd
from tests.unit.policy.conftest import NOW, DecisionCase

RATES = {"SIM-M": 0.1, "SIM-L": 0.2}
"""1000 steps take 10,000 s on the slow machine, and half of that on the fast one."""


def pair(case: DecisionCase, deadline_s: float, budget: str | None = None) -> tuple[Demand, Demand]:
    """A job, and one after it that has a deadline."""
    case.offer("slow", 1.0)
    case.offer("fast", 9.0, gpu="SIM-L")
    first = case.job("job_a", rates=RATES, budget_nano_usd=None if budget is None else usd(budget))
    then = case.job("job_b", rates=RATES, deadline_at_ms=NOW + round(1000 * deadline_s))
    return Demand(first, 1000), Demand(replace(then, after=(first.id,)), 1000)


def due_s(case: DecisionCase, first: Demand, then: Demand, on: str | None = None) -> float | None:
    """Seconds from now; None if it need not hurry."""
    running = {} if on is None else {first.job.id: Running(on, NOW)}
    found = due_for_what_follows([first], [then], case.market(), case.perf(), running, MoveLimits())
    return (found[first.job.id] - case.now) / 1000 if first.job.id in found else None


@pytest.mark.parametrize(
    ("deadline_s", "due"),
    [(20_000.0, 14_111.1), (11_800.0, 5911.1), (11_000.0, 5500.0), (10_700.0, 5350.0), (10_500.0, None)],
)
def test_a_job_hurries_with_less_in_reserve_where_there_is_less_than_a_tenth(
    case: DecisionCase, deadline_s: float, due: float | None
) -> None:
    """Each takes 5300 s, start included; a tenth more is 5889 s. With less, both have the same part of the time."""
    assert due_s(case, *pair(case, deadline_s)) == (None if due is None else pytest.approx(due, abs=1.0))


def test_a_job_that_has_lost_a_little_time_on_a_fast_machine_stays_there(
    case: DecisionCase, at_hour: Callable[[DecisionCase, float], None], settled: Callable[..., Running]
) -> None:
    first, then = pair(case, 12_000.0)
    fast = case.offers[1].id
    for minutes, steps in ((10, 60), (20, 170), (30, 280), (40, 400), (60, 640)):  # at 0.2 steps per second
        at_hour(case, minutes / 60)
        left = replace(first, done_steps=steps)
        due = due_s(case, left, then, on=fast)
        assert due is not None
        placement = case.decide(hurrying(left, case.now + round(1000 * due)), settled(fast))
        assert (placement.action, placement.offer_id) == ("stay", fast), (minutes, placement.reason)


@pytest.mark.parametrize(("budget", "hurries"), [("5.00", False), ("13.00", False), ("20.00", True), (None, True)])
def test_a_job_hurries_for_others_only_if_its_own_budget_surely_pays_for_it(
    case: DecisionCase, budget: str | None, hurries: bool
) -> None:
    """It costs $2.90 on the slow machine and $13.25 on the fast one."""
    first, then = pair(case, 14_000.0, budget)
    assert (due_s(case, first, then) is not None) == hurries


def test_a_job_that_hurries_takes_the_machine_that_its_budget_surely_pays_for(case: DecisionCase) -> None:
    """The faster machine would be surer to be in time."""
    first, _ = pair(case, 14_000.0, "13.00")
    placement = case.decide(hurrying(first, NOW + 10_200_000))
    assert placement.offer_id == case.offers[0].id, placement.reason


def test_jobs_that_no_deadline_depends_on_do_not_hurry(case: DecisionCase) -> None:
    first, then = pair(case, 14_000.0)
    other = Demand(case.job("job_c", rates=RATES), 1000)
    last = Demand(replace(case.job("job_d", rates=RATES), after=(then.job.id,)), 1000)
    demands: Sequence[Demand] = (first, other)
    found = due_for_what_follows(demands, [then, last], case.market(), case.perf(), {}, MoveLimits())
    assert set(found) == {first.job.id}


def test_a_job_without_a_deadline_is_not_called_late_because_of_one_that_comes_after_it(case: DecisionCase) -> None:
    first, _ = pair(case, 14_000.0, "1.00")
    hurried = hurrying(first, NOW + 60_000)
    reason = case.decide(hurried).reason
    assert "too late for the jobs after it" in reason
    assert "deadline" not in reason.partition("; jobs after it have deadlines")[0]
    assert "finish late" not in reason
    found = needed_budgets([hurried, first], case.market(), case.perf(), limits=MoveLimits())
    assert found == needed_budgets([first], case.market(), case.perf(), limits=MoveLimits())


def test_a_budget_that_is_enough_counts_the_own_deadline_of_a_job_that_hurries(case: DecisionCase) -> None:
    first, _ = pair(case, 14_000.0, "1.00")
    due = replace(first, job=replace(first.job, spec=replace(first.job.spec, deadline_at_ms=NOW + 7_200_000)))
    own, without, hurried = (
        needed_budgets([each], case.market(), case.perf(), limits=MoveLimits())[first.job.id]
        for each in (due, first, hurrying(due, NOW + 60_000))
    )
    assert own == hurried
    assert own.enough > without.enough


def test_each_of_many_pairs_hurries_as_it_would_alone(case: DecisionCase) -> None:
    """What is computed for one job serves those that are equal in what matters to it, and no others."""
    case.offer("slow", 1.0)
    case.offer("fast", 9.0, gpu="SIM-L")
    chance, firsts, thens = random.Random(3), [], []
    for number in range(40):
        steps, budget = chance.choice((500, 1000, 1001)), chance.choice((None, usd("13"), usd("20")))
        first = case.job(f"job_a{number}", rates=RATES, budget_nano_usd=budget)
        due_ms = NOW + round(1000 * chance.choice((9000.0, 14_000.0, 20_000.0)))
        then = case.job(f"job_b{number}", rates=RATES, deadline_at_ms=due_ms)
        firsts.append(Demand(first, steps, setup_s=chance.choice((0.0, 600.0))))
        thens.append(Demand(replace(then, after=(first.id,)), steps))
    known = case.market(), case.perf(), {}, MoveLimits()
    together = due_for_what_follows(firsts, thens, *known)
    alone = [due_for_what_follows([first], [then], *known) for first, then in zip(firsts, thens, strict=True)]
    assert together == {job_id: due_ms for each in alone for job_id, due_ms in each.items()}
    assert 0 < len(together) < len(firsts)
