"""The simulator of space sharing: pairs run with their true rates, which the policy learns only by running them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.arena.pair_estimates import FixedPairs, LearnedPairs
from orchestrator.arena.rounds import ROUND_S, Arrivals
from orchestrator.arena.shared_rounds import SharedCluster, SharedOutcome
from orchestrator.policy.groups import Supply, Together
from orchestrator.policy.groups.policies.fairness import max_min_fairness

KINDS = [("vision 1", "vision"), ("text 1", "text")]
ALONE = np.array([[10.0], [10.0]])
STEPS = 10 * ROUND_S * 10  # ten rounds alone


def fixed(first: int = 0, second: int = 0, rate: float = 0.0) -> FixedPairs:
    """One pair of jobs that each make `rate` steps/s side by side; no pair if `rate` is 0."""
    one, two, way = (np.array([each] if rate else [], dtype=np.int64) for each in (first, second, 0))
    rates = np.array([rate] if rate else [])
    return FixedPairs(Together(one, two, way, rates, rates))


class Curious(LearnedPairs):
    """Tries every pair once."""

    def promising(self, first: int, second: int, way: int) -> bool:
        return (min(first, second), max(first, second), way) not in self._measured


def simulated(
    kind: list[int], beside: float, estimates: FixedPairs | LearnedPairs, *, gpus: float = 1.0
) -> SharedOutcome:
    jobs = Arrivals(np.zeros(len(kind)), ALONE[kind], np.ones(len(kind)), np.full(len(kind), STEPS))
    table = np.full((2, 2, 1), beside)
    supply = Supply(np.array([gpus]), np.ones(1))
    return SharedCluster(jobs, np.array(kind), table, supply, max_min_fairness, estimates).run()


def test_without_pairs_jobs_take_turns() -> None:
    found = simulated([0, 1], 9.0, fixed())
    assert sorted((found.ended_s / ROUND_S).round().tolist()) == [19, 20]
    assert (found.paired, found.misfits) == (0, 0)


def test_a_pair_that_is_counted_on_runs_with_its_true_rates() -> None:
    found = simulated([0, 1], 9.0, fixed(0, 1, rate=8.0))
    assert found.ended_s == pytest.approx([STEPS / 9.0] * 2)
    assert found.paired == 12
    of_one_kind = simulated([0, 0], 9.0, fixed(0, 0, rate=8.0))
    assert of_one_kind.ended_s == pytest.approx(found.ended_s)


def test_a_pair_that_does_not_fit_lets_the_first_job_run_alone_and_is_not_repeated() -> None:
    learned = Curious(KINDS, ALONE, [("V100", 1)])
    found = simulated([0, 1], 0.0, learned)
    assert (found.misfits, found.tried) == (1, 1)
    assert max(found.ended_s) == pytest.approx(20 * ROUND_S)
    assert learned.estimates.fits[learned.estimates.second != learned.estimates.first].max() == 0


def test_a_try_teaches_the_policy_to_share() -> None:
    learned = Curious(KINDS, ALONE, [("V100", 1)])
    assert not len(learned.together().way)
    found = simulated([0, 1], 9.0, learned)
    assert found.tried == 1
    assert max(found.ended_s) == pytest.approx(STEPS / 9.0)
    assert 1 in learned.together().second


def test_a_measured_pair_moves_the_estimates_of_others_and_old_news_is_none() -> None:
    learned = LearnedPairs(KINDS, ALONE, [("V100", 1)])
    before = learned.estimates
    assert learned.saw(1, 0, 0, (9.5, 9.0))
    assert not learned.saw(0, 1, 0, (9.0, 9.5))
    after = learned.estimates
    pair = (after.first == 0) & (after.second == 1)
    assert after.low_first[pair] == pytest.approx(9.0, rel=0.05)
    assert (after.low_first > before.low_first).all()
    assert not learned.promising(0, 1, 0)
    assert not learned.promising(0, 5, 0)


def test_jobs_that_arrive_later_are_waited_for_and_large_ones_are_refused() -> None:
    one = Arrivals(np.array([7200.0]), ALONE[:1], np.ones(1), np.full(1, STEPS))
    args = (np.zeros(1, np.int64), np.zeros((2, 2, 1)), Supply(np.ones(1), np.ones(1)), max_min_fairness, fixed())
    assert SharedCluster(one, *args).run().ended_s == pytest.approx(7200 + 10 * ROUND_S)
    with pytest.raises(ValueError, match="several GPUs"):
        SharedCluster(Arrivals(one.at_s, one.rate, np.full(1, 2.0), one.steps), *args)


@pytest.mark.parametrize("wrong", [(3.0, 0.0), (0.0, 3.0), (math.nan, math.nan), (math.inf, 1.0), (-1.0, 1.0)])
def test_rates_of_a_pair_that_cannot_be_are_refused(wrong: tuple[float, float]) -> None:
    learned = LearnedPairs(KINDS, ALONE, [("V100", 1)])
    with pytest.raises(ValueError, match="positive and finite"):
        learned.saw(0, 1, 0, wrong)
    never = LearnedPairs(KINDS, ALONE * 0, [("V100", 1)])
    with pytest.raises(ValueError, match="cannot both run"):
        never.saw(0, 1, 0, (3.0, 3.0))
