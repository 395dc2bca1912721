"""Large programs of jobs that all differ: answers within the promised gap, and bounds that no answer passes."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups import Budgets, Collection, Quota, Supply, collection, verify
from orchestrator.policy.groups.decomposed import solve_decomposed
from orchestrator.policy.groups.exact import solve_exactly
from orchestrator.policy.groups.policies.cost import least_cost
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import finish_time_fairness, makespan
from orchestrator.policy.groups.policies.throughput import total_throughput


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
