"""No answer is used without a certificate that holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestrator.policy.groups import Allocation, Certificate, Program, Supply, collection, engine, solve, verify
from orchestrator.policy.groups.engine import Uncertified
from orchestrator.policy.groups.exact import solve_exactly
from orchestrator.policy.groups.policies.fairness import max_min_fairness
from orchestrator.policy.groups.policies.finishing import makespan
from orchestrator.policy.groups.policies.throughput import total_throughput


def program() -> Program:
    chance = np.random.default_rng(3)
    return max_min_fairness(collection(chance.uniform(1, 9, (12, 3)), Supply(np.full(3, 2.0), np.ones(3))))


def test_an_answer_without_a_certificate_is_refused() -> None:
    asked = program()
    with pytest.raises(Uncertified, match="no certificate"):
        verify(asked, replace(solve(asked), certificates=()))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: replace(c, bound=c.value * 0.99), "better than its bound"),
        (lambda c: replace(c, bound=np.inf), "better than its bound"),
        (lambda c: replace(c, value=c.value * 1.01, bound=c.bound * 1.02), "less than the certificate says"),
    ],
)
def test_a_certificate_that_does_not_hold_is_refused(change, why: str) -> None:
    asked = program()
    found = solve(asked)
    wrong: tuple[Certificate, ...] = (change(found.certificates[0]),)
    with pytest.raises(Uncertified, match=why):
        verify(asked, replace(found, certificates=wrong))


@pytest.mark.parametrize(("factor", "why"), [(1.5, "is exceeded"), (-1.0, "negative")])
def test_shares_that_nobody_can_give_are_refused(factor: float, why: str) -> None:
    asked = program()
    found = solve(asked)
    with pytest.raises(Uncertified, match=why):
        verify(asked, replace(found, times=found.times * factor, shares=found.shares * factor))


def test_a_job_that_needs_nothing_lacks_nothing_whatever_the_rounding() -> None:
    """The solver may put the time of a job slightly below zero."""
    asked = total_throughput(
        collection(
            np.array([[0.5], [0.5], [0.5]]),
            Supply(np.full(1, 2.0), np.ones(1)),
            gpus=np.array([1.0, 2.0, 3.0]),
        )
    )
    asked = replace(asked, at_least=np.array([0.2, 0.0, 0.0]))
    found = solve(asked)
    shares = np.array([[0.9], [0.5], [-5e-9]])
    verify(asked, replace(found, times=shares, shares=shares))
    with pytest.raises(Uncertified, match="slower"):
        verify(replace(asked, at_least=np.array([0.5, 0.0, 0.0])), replace(found, times=shares, shares=shares))


def test_prices_say_what_one_more_unit_is_worth() -> None:
    rate = np.array([[4.0, 6.0], [1.0, 5.0], [2.0, 2.0]])
    before, after = (
        solve(total_throughput(collection(rate, Supply(np.array([gpus, 1.0]), np.ones(2))))) for gpus in (0.5, 0.6)
    )
    gained = after.certificates[0].value - before.certificates[0].value
    assert before.certificates[0].prices[0] * 0.1 == pytest.approx(gained)


def test_where_rates_differ_by_twelve_orders_of_magnitude_the_answer_is_still_near_its_bound() -> None:
    """The exact engine alone has no bound there that says anything."""
    chance = np.random.default_rng(0)
    rate = chance.uniform(1, 4, (300, 4)) * 10 ** chance.uniform(-6, 6, (300, 1))
    jobs = collection(rate, Supply(np.full(4, 37.0), np.ones(4)), steps=10 ** chance.uniform(2, 5, 300))
    found = solve(makespan(jobs))
    verify(makespan(jobs), found)
    assert found.in_time
    assert found.certificates[0].gap <= 5e-3


def test_an_answer_that_is_refused_is_replaced_by_the_other_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = program()

    def boastful(*_: Any, **named: Any) -> Allocation:
        found = solve_exactly(asked, until=named["until"])
        return replace(found, times=found.times * 1.5)

    monkeypatch.setattr(engine, "solve_exactly", boastful)
    assert solve(asked).certificates[0].gap <= 5e-3
    monkeypatch.setattr(engine, "solve_decomposed", boastful)
    with pytest.raises(Uncertified, match="is exceeded"):
        solve(asked, gap=0.0)
