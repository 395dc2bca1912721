"""The simulator of a shared cluster agrees with Gavel's own, and is fair in what it counts.

Reference: shared/jobs/reference_results.csv (Gavel @ c4fa400 with ECOS). Its tolerances come from swapping the solver
there: 2% of cost and makespan, 4% of mean completion time; of the makespan policy only the makespan.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from benchmarks._policies_of_gavel import assignment
from benchmarks.shared_cluster import FAULTY, NAME_OF, QUICK, as_gavel, compared, references, simulated
from orchestrator.arena.cluster_policies import POLICIES
from orchestrator.arena.rounds import Arrivals, Cluster
from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups import Supply, collection
from tests.shared_data import shared

KNOWING = [policy for policy in NAME_OF if policy.endswith("_perf") and "water_filling" not in policy]
EXACT = ("fifo", "fifo_perf", "isolated")
CASES = [(trace, policy) for trace in QUICK for policy in KNOWING if (trace, policy) != FAULTY]


@pytest.mark.parametrize(("trace", "policy"), CASES)
def test_results_agree_with_the_reference(trace: str, policy: str) -> None:
    shared("jobs/reference_results.csv")
    (row,) = (row for row in references((trace,)) if row["policy"] == policy)
    assert [claim for claim in compared(row, simulated(row)) if not claim.met] == []


@pytest.mark.parametrize(("trace", "policy"), [(trace, policy) for trace in QUICK for policy in EXACT])
def test_with_gavels_faults_policies_without_a_solver_give_its_results(trace: str, policy: str) -> None:
    shared("jobs/reference_results.csv")
    (row,) = (row for row in references((trace,)) if row["policy"] == policy)
    assert [claim.value for claim in compared(row, [as_gavel(row)])] == pytest.approx([0.0] * 3, abs=0.15)


@pytest.mark.parametrize("policy", ["finish_time_fairness", "max_min_fairness"])
def test_with_gavels_faults_policies_without_speeds_agree_with_the_reference(policy: str) -> None:
    shared("jobs/reference_results.csv")
    (row,) = (row for row in references(("static100",)) if row["policy"] == policy)
    assert [claim for claim in compared(row, [as_gavel(row)]) if not claim.met] == []


def test_changing_prices_and_deadlines_agree_with_the_reference() -> None:
    shared("jobs/reference_results.csv")
    rows = [row for row in references(("slo120_s0",)) if row["prices"] == "aws_2020" and "cost" in row["policy"]]
    assert len(rows) == 2
    assert [claim for row in rows for claim in compared(row, [as_gavel(row)]) if not claim.met] == []


def test_space_sharing_with_gavels_faults_agrees_with_the_reference() -> None:
    shared("jobs/reference_results.csv")
    (row,) = (row for row in references(("single60_s0",)) if row["policy"] == "max_min_fairness_packed")
    assert [claim for claim in compared(row, [as_gavel(row)]) if not claim.met] == []


@pytest.mark.parametrize(
    ("trace", "cluster", "policy"), [("static100", "8:16:24", "gandiva"), ("single200_s0", "9:9:9", "allox")]
)
def test_gandiva_and_allox_give_gavels_results(trace: str, cluster: str, policy: str) -> None:
    shared("jobs/reference_results.csv")
    (row,) = (row for row in references((trace,)) if (row["cluster"], row["policy"]) == (cluster, policy))
    assert [claim.value for claim in compared(row, [as_gavel(row)])] == pytest.approx([0.0] * 3, abs=0.01)


def test_an_assignment_costs_least() -> None:
    chance = np.random.default_rng(0)
    for _ in range(50):
        cost = chance.integers(1, 6, (4, 5)).astype(float)
        found = assignment(cost)
        assert len(set(found.tolist())) == 4
        least = min(cost[np.arange(4), list(each)].sum() for each in permutations(range(5), 4))
        assert cost[np.arange(4), found].sum() == least


def test_nobody_overtakes_in_a_queue() -> None:
    jobs = Arrivals(np.array([0.0, 1.0, 2.0]), np.ones((3, 1)), np.array([1.0, 2.0, 1.0]), np.array([7200.0] * 3))
    found = POLICIES["queue"].cluster(jobs, Supply(np.array([2.0]), np.ones(1))).run()
    first, second, third = found.ended_s
    assert first == 7200.0
    assert first + 7200 <= second < third - 3600


def test_what_a_queue_leaves_idle_is_used_when_it_is_looked_at_again() -> None:
    for second_s in (0.0, 200.0):
        jobs = Arrivals(np.array([0.0, second_s]), np.ones((2, 1)), np.ones(2), np.array([100.0, 100.0]))
        found = POLICIES["queue"].cluster(jobs, Supply(np.ones(1), np.ones(1))).run()
        assert found.ended_s[0] == 100.0
        assert 1920 + 100 <= found.ended_s[1] <= 1920 + 360 + 100


def test_a_job_that_fits_nowhere_is_an_error() -> None:
    jobs = Arrivals(np.zeros(1), np.ones((1, 1)), np.array([2.0]), np.array([9.0]))
    for name in ("queue", "makespan"):
        with pytest.raises((ValueError, InfeasibleError)):
            POLICIES[name].cluster(jobs, Supply(np.ones(1), np.ones(1))).run()


def test_a_gang_has_no_part_of_a_kind_that_is_too_small_for_it() -> None:
    rate = np.array([[20.0, 1.0]])
    jobs = Arrivals(np.zeros(1), rate, np.array([4.0]), np.array([20_000.0]))
    for name in ("max-throughput", "makespan", "queue"):
        found = POLICIES[name].cluster(jobs, Supply(np.array([2.0, 4.0]), np.ones(2))).run()
        assert found.ended_s[0] == pytest.approx(20_000.0, abs=1.0)


def test_of_equally_short_makespans_the_one_with_most_progress_is_chosen() -> None:
    """The long job decides the makespan; the short ones need not wait for it."""
    rate = np.array([[4.0, 1.0], [4.0, 1.0], [4.0, 1.0]])
    jobs = collection(rate, Supply(np.array([2.0, 1.0]), np.ones(2)), steps=np.array([40000.0, 400.0, 400.0]))
    shares = POLICIES["makespan"].shares(jobs)
    assert shares[0] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert (rate * shares).sum() == pytest.approx(4.0 + 4.0 + 1.0, rel=1e-6)


def test_without_speeds_no_kind_is_preferred() -> None:
    jobs = collection(np.array([[4.0, 1.0], [1.0, 0.0]]), Supply(np.array([1.0, 3.0]), np.ones(2)))
    shares = POLICIES["max-min-fairness-agnostic"].shares(jobs)
    assert shares / shares.sum(axis=1, keepdims=True) == pytest.approx(np.array([[0.25, 0.75], [0.25, 0.75]]))


def test_two_jobs_with_equal_shares_of_one_machine_take_turns() -> None:
    jobs = Arrivals(np.zeros(2), np.ones((2, 1)), np.ones(2), np.array([720.0, 720.0]))
    found = Cluster(jobs, Supply(np.ones(1), np.array([10.0])), lambda there: np.full((len(there), 1), 0.5)).run()
    assert sorted(found.ended_s) == [1080.0, 1440.0]
    assert found.usd == pytest.approx(4.0)


def test_a_machine_is_not_idle_while_a_job_without_a_share_waits() -> None:
    jobs = Arrivals(np.array([0.0, 50.0]), np.ones((2, 1)), np.ones(2), np.array([360.0, 100.0]))
    found = Cluster(jobs, Supply(np.ones(1), np.ones(1)), lambda there: np.zeros((len(there), 1))).run()
    assert found.ended_s.tolist() == [360.0, 460.0]


def test_time_before_the_first_job_and_between_jobs_is_skipped() -> None:
    jobs = Arrivals(np.array([5000.0, 90000.0]), np.ones((2, 1)), np.ones(2), np.array([10.0, 10.0]))
    found = Cluster(jobs, Supply(np.ones(1), np.ones(1)), lambda there: np.ones((len(there), 1))).run()
    assert found.ended_s.tolist() == [5010.0, 90010.0]
