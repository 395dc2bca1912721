"""No answer is used without a certificate that holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.policy.groups import Certificate, Program, Supply, collection, solve, verify
from orchestrator.policy.groups.engine import Uncertified
from orchestrator.policy.groups.policies.fairness import max_min_fairness
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


def test_prices_say_what_one_more_unit_is_worth() -> None:
    rate = np.array([[4.0, 6.0], [1.0, 5.0], [2.0, 2.0]])
    before, after = (
        solve(total_throughput(collection(rate, Supply(np.array([gpus, 1.0]), np.ones(2))))) for gpus in (0.5, 0.6)
    )
    gained = after.certificates[0].value - before.certificates[0].value
    assert before.certificates[0].prices[0] * 0.1 == pytest.approx(gained)
