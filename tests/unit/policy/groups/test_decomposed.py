"""Large programs of jobs that all differ: answers within the promised gap, and bounds that no answer passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups import Budgets, Collection, Quota, Supply, collection, verify
from orchestrator.policy.groups.decomposed import solve_decomposed
from orchestrator.policy.groups.exact import solve_exactly
from orchestrator.policy.groups.mixing import choose
from orchestrator.policy.groups.patterns import joined, one_class_each
from orchestrator.policy.groups.policies.cost import least_cost
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.throughput import throughput_per_dollar, total_throughput
from orchestrator.policy.groups.priced import PricedTotal
from orchestrator.policy.groups.time_limit import TimeLimit


def different(jobs: int = 1400, *, gpus: float = 0.7) -> Collection:
    chance = np.random.default_rng(1)
    base = chance.uniform(1, 20, (9, 4))
    rate = base[chance.integers(0, 9, jobs)] * chance.uniform(0.9, 1.1, (jobs, 4))
    usd_per_h = chance.uniform(0.5, 3, 4)
    steps = chance.uniform(1e3, 1e5, jobs)
    deadline = steps / rate.max(axis=1) * chance.choice([1.3, 2.0, 8.0], jobs)
    user = chance.integers(0, 20, jobs)
    alone = (usd_per_h / rate).min(axis=1) * steps / deadline
    age = chance.uniform(0, 1e3, jobs)
    return collection(
        rate,
        Supply(np.full(4, gpus * jobs / 4), usd_per_h),
        steps=steps,
        age_s=age,
        alone_s=age,
        deadline_s=deadline,
        quotas=(Quota("two kinds", np.array([0, 1]), 0.33 * jobs),),
        budgets=Budgets(tuple(map(str, range(20))), 1.7 * np.bincount(user, alone, minlength=20), user),
    )


@pytest.mark.parametrize("policy", [least_cost, total_throughput, max_min_fairness, makespan, finish_time_fairness])
def test_the_answer_is_within_the_gap_and_the_bound_holds(policy) -> None:
    program = policy(different())
    found, exact = solve_decomposed(program, gap=5e-3), solve_exactly(program)
    verify(program, found)
    (certificate,), (best,) = found.certificates, exact.certificates
    assert certificate.gap <= 5e-3
    sign = 1 if program.terms[0].most else -1
    assert sign * certificate.value <= sign * best.value * (1 + sign * 1e-6)
    assert sign * certificate.bound >= sign * best.value * (1 - sign * 1e-6)


def test_a_smaller_gap_is_kept_too() -> None:
    program = least_cost(different())
    (certificate,) = solve_decomposed(program, gap=1e-6).certificates
    assert certificate.gap <= 1e-6


def test_deadlines_that_the_supply_cannot_meet_are_a_contradiction() -> None:
    with pytest.raises(InfeasibleError):
        solve_decomposed(least_cost(different(700, gpus=0.1)))


def variants(jobs: int, seed: int) -> Collection:
    """Jobs that all differ a little, on ten variants of each of three types of GPU, of which there are few."""
    chance = np.random.default_rng(seed)
    base = chance.uniform(0.5, 20, (26, 1)) * np.array([1.0, 2.5, 4.0]) * chance.uniform(0.6, 1.4, (26, 3))
    rate = np.repeat(base[chance.integers(0, 26, jobs)], 10, axis=1)
    rate = rate * chance.uniform(0.85, 1.15, 30) * chance.uniform(0.93, 1.07, (jobs, 30))
    return collection(rate, Supply(np.full(30, 0.75 * jobs / 30), np.ones(30)), steps=3600 * rate.max(axis=1))


@pytest.mark.parametrize(("jobs", "seed"), [(1500, 3), (2500, 4)], ids=["in groups", "all together"])
def test_groups_whose_first_candidates_do_not_fit_find_others(jobs: int, seed: int) -> None:
    program = max_min_fairness(variants(jobs, seed))
    found = solve_decomposed(program, gap=5e-3)
    verify(program, found)
    assert found.certificates[0].gap <= 5e-3


def test_an_aim_that_is_impossible_is_followed_by_a_lower_one() -> None:
    chance = np.random.default_rng(8)
    jobs, ways = 2000, 12
    rate = chance.uniform(1, 20, (9, ways))[chance.integers(0, 9, jobs)] * chance.uniform(0.9, 1.1, (jobs, ways))
    steps, gpus = 10 ** chance.uniform(2, 5, jobs), 2.0 ** chance.integers(0, 4, jobs)
    supply = Supply(np.full(ways, 0.7 * jobs / ways), np.ones(ways))
    quota = Quota("some", np.arange(ways // 2), 0.2 * jobs)
    program = max_min_fairness(collection(rate, supply, steps=steps, gpus=gpus, quotas=(quota,)))
    found = solve_decomposed(program, gap=5e-3)
    verify(program, found)
    assert found.certificates[0].gap <= 5e-3


@pytest.mark.parametrize("policy", [least_cost, total_throughput, throughput_per_dollar])
@pytest.mark.parametrize("quotas", [(), (Quota("endless", np.arange(2), np.inf),)], ids=["none", "endless"])
def test_without_limits_each_job_has_what_is_best_for_it(policy, quotas: tuple[Quota, ...]) -> None:
    jobs = different(300)
    free = replace(jobs, supply=Supply(np.full(4, np.inf), jobs.supply.usd_per_h), quotas=quotas, budgets=None)
    program = policy(free)
    found, exact = solve_decomposed(program), solve_exactly(program)
    verify(program, found)
    assert found.certificates[0].value == pytest.approx(exact.certificates[0].value, rel=1e-6)


@pytest.mark.parametrize("policy", [max_min_fairness, makespan, least_cost])
def test_a_way_of_which_nothing_is_left_is_not_used(policy) -> None:
    jobs = different(300, gpus=2.0)
    less = np.where(np.arange(4) == 1, 0.0, jobs.supply.gpus)
    supply, late = Supply(less, jobs.supply.usd_per_h), 30 * jobs.deadline_s
    program = policy(replace(jobs, supply=supply, deadline_s=late, quotas=(), budgets=None))
    found, exact = solve_decomposed(program), solve_exactly(program)
    verify(program, found)
    assert not found.shares[:, 1].any()
    assert found.certificates[0].gap <= 5e-3
    assert found.certificates[0].value == pytest.approx(exact.certificates[0].value, rel=6e-3)


@pytest.mark.parametrize("policy", [max_min_fairness, makespan, finish_time_fairness])
def test_a_job_for_which_nothing_is_left_is_named(policy) -> None:
    jobs = different(300)
    rate = jobs.rate.copy()
    rate[7, 1:] = 0.0
    less = np.where(np.arange(4) == 0, 0.0, jobs.supply.gpus)
    with pytest.raises(InfeasibleError, match="job 7 cannot run"):
        solve_decomposed(policy(replace(jobs, rate=rate, supply=Supply(less, jobs.supply.usd_per_h), budgets=None)))


def test_throughput_per_dollar_needs_prices() -> None:
    jobs = different(20)
    free = np.array([1.0, 0.0, 1.0, 1.0])
    with pytest.raises(InfeasibleError, match="number 2 has none"):
        throughput_per_dollar(replace(jobs, supply=Supply(jobs.supply.gpus, free)))


@pytest.mark.parametrize("seed", range(5))
def test_going_on_from_an_earlier_choice_finds_what_a_new_search_does(seed: int) -> None:
    work, most = priced_total(seed)
    chance = np.random.default_rng(seed)
    candidates = work.mixes(chance.uniform(0, 1, len(most)))
    found = choose(work, candidates, most, TimeLimit())
    for _ in range(4):
        candidates = joined([candidates, work.mixes(found.prices)], 4)
        found, from_scratch = (choose(work, candidates, most, TimeLimit(), before) for before in (found, None))
        value = [each.part @ work.worth(candidates) + excess(each.used, most) for each in (found, from_scratch)]
        assert value[0] == pytest.approx(value[1], rel=1e-6)


@pytest.mark.parametrize("left", [0.0, 1e-300, 1e-20, 1e-9])
def test_a_limit_of_which_next_to_nothing_is_left_is_no_riddle_to_the_solver(left: float) -> None:
    work, most = priced_total(0)
    candidates = joined([work.mixes(np.zeros(len(most))), work.mixes(np.ones(len(most)))], 4)
    most[0] *= left
    found = choose(work, candidates, most, TimeLimit())
    assert np.isfinite(found.prices).all()
    assert np.bincount(candidates.job, found.part) == pytest.approx(1)


def priced_total(seed: int) -> tuple[PricedTotal, np.ndarray]:
    """Sixty jobs at least cost, and their limits."""
    chance = np.random.default_rng(seed)
    rate = chance.uniform(1, 4, (60, 4))
    jobs = collection(rate, Supply(np.full(4, 12.0), chance.uniform(0.5, 3, 4)))
    problem = one_class_each(max_min_fairness(jobs).problem)
    return PricedTotal(problem, problem.cost, rate.max(axis=1) * chance.uniform(0.2, 0.6, 60)), problem.most.copy()


def excess(used: np.ndarray, most: np.ndarray) -> float:
    """What exceeds the limits, dearly."""
    return 60 * float(np.maximum(used - most, 0).sum())
