"""Bad input and impossible demands have names, and say what to do."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.policy.groups import Budgets, Quota, Supply, collection, solve
from orchestrator.policy.groups.exact import solve_exactly
from orchestrator.policy.groups.policies.cost import least_cost
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.time_limit import TimeLimit

RATES = np.array([[1.0, 2.0], [1.0, 4.0]])
SUPPLY = Supply(np.array([np.inf, np.inf]), np.array([1.0, 3.0]))


def test_a_job_without_any_known_throughput_is_named() -> None:
    with pytest.raises(InfeasibleError, match="job 1"):
        collection(np.array([[1.0, 2.0], [0.0, 0.0]]), SUPPLY)


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_weight_that_is_not_positive_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="job 1"):
        collection(RATES, SUPPLY, weight=np.array([1.0, weight]))


def test_a_job_that_no_offer_runs_fast_enough_is_named_with_what_it_needs() -> None:
    jobs = collection(RATES, SUPPLY, steps=np.array([100.0, 100.0]), deadline_s=np.array([200.0, 20.0]))
    with pytest.raises(InfeasibleError, match=r"job 1 needs 5 steps/s .* than 4"):
        least_cost(jobs)


def test_a_quota_below_what_deadlines_need_is_a_contradiction() -> None:
    jobs = collection(
        RATES,
        SUPPLY,
        steps=np.array([100.0, 100.0]),
        deadline_s=np.array([50.0, 25.0]),
        quotas=(Quota("one GPU", np.array([0, 1]), 1.0),),
    )
    with pytest.raises(InfeasibleError):
        solve(least_cost(jobs))


def test_budgets_that_contradict_deadlines_are_a_contradiction() -> None:
    budgets = Budgets(("poor", "rich"), np.array([0.5, 100.0]), np.array([0, 1]))
    deadline = np.array([100.0, 100.0])
    jobs = collection(RATES, SUPPLY, steps=np.full(2, 100.0), deadline_s=deadline, budgets=budgets)
    with pytest.raises(InfeasibleError):
        solve(least_cost(jobs))


def test_fairness_of_an_unlimited_supply_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="limited"):
        max_min_fairness(collection(RATES, SUPPLY))


def test_a_solver_without_time_says_so() -> None:
    chance = np.random.default_rng(0)
    jobs = collection(chance.uniform(1, 2, (300, 8)), Supply(np.full(8, 9.0), np.ones(8)))
    with pytest.raises(LimitError, match="within"):
        solve_exactly(max_min_fairness(jobs), until=TimeLimit(0.0))
