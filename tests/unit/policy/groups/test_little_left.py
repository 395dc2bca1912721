"""Jobs that have next to nothing left to do: what they need is less than the solver takes for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.policy.groups import Collection, Quota, Supply, collection, solve
from orchestrator.policy.groups.policies.cost import least_cost, on_time
from orchestrator.policy.groups.policies.throughput import throughput_per_dollar_on_time

DAY_S = 86400.0


def jobs(steps: list[float], quotas: tuple[Quota, ...] = ()) -> Collection:
    """Jobs that differ in their speeds, each with 30 days for its steps."""
    rate = np.array([20.0, 10.0]) * np.linspace(1, 1.1, len(steps))[:, None]
    supply = Supply(np.full(2, np.inf), np.array([3.0, 1.0]))
    deadline_s = np.full(len(steps), 30 * DAY_S)
    return collection(rate, supply, steps=np.array(steps), deadline_s=deadline_s, quotas=quotas)


@pytest.mark.parametrize("left", [10.0, 1.0, 1e-2, 1e-4])
def test_the_last_steps_of_a_job_are_planned_like_any_others(left: float) -> None:
    one = jobs([left])
    found = solve(least_cost(one))
    assert found.rates == pytest.approx(on_time(one), rel=1e-6)
    assert found.certificates[0].gap < 1e-6
    assert found.certificates[0].value == pytest.approx(1.0 * left / (30 * DAY_S) / 10, rel=1e-6)


@pytest.mark.parametrize("policy", [least_cost, throughput_per_dollar_on_time])
def test_a_job_with_little_left_among_others_with_much(policy) -> None:
    some = jobs([1.0, 2e7, 1e-3, 1e7], (Quota("all", np.array([0, 1]), 2.0),))
    found = solve(policy(some))
    assert (found.rates >= on_time(some) * (1 - 1e-6)).all()
    assert found.certificates[0].gap < 1e-6


def test_a_large_group_with_jobs_that_have_little_left() -> None:
    """So large that it is decomposed."""
    chance = np.random.default_rng(0)
    rate = chance.uniform(1, 20, (1100, 30))
    deadline_s = np.full(1100, 30 * DAY_S)
    steps = np.where(chance.random(1100) < 0.1, 1.0, 0.5 * rate.max(axis=1) * deadline_s)
    supply = Supply(np.full(30, 30.0), chance.uniform(1, 3, 30))
    some = collection(rate, supply, steps=steps, deadline_s=deadline_s)
    found = solve(least_cost(some))
    assert (found.rates >= on_time(some) * (1 - 1e-6)).all()
