"""A policy counts on a pair only if it helps at the lower ends of its intervals, and probably fits."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.model import Job, JobSpec, TrainSpec
from orchestrator.perf import Observation, PairMisfit, PairObservation, PerfBook, program_of
from orchestrator.policy.groups import Supply, collection, solve
from orchestrator.policy.groups.companions import PairEstimates, counted_on, together
from orchestrator.policy.groups.policies.fairness import max_min_fairness


def job(job_id: str, name: str) -> Job:
    return Job(job_id, JobSpec(name, TrainSpec(f"{name}:f", None, {}, "/w", {}, (), 100, None)), "me", 0, "running")


JOBS = [[job("a1", "a"), job("a2", "a")], [job("b1", "b")]]
PROGRAMS = {each.id: program_of(each.spec.train) for kind in JOBS for each in kind}
ALONE = [Observation(each.id, "V100", 1, 10.0, 10_000, 0) for kind in JOBS for each in kind]


def book(*pairs: PairObservation | PairMisfit) -> PerfBook:
    seen = [each for each in pairs if isinstance(each, PairObservation)]
    missed = [each for each in pairs if isinstance(each, PairMisfit)]
    return PerfBook.as_of(1, ALONE, programs=PROGRAMS, pairs=seen, misfits=missed)


def shared(one: str, two: str, rate: float, other: float) -> PairObservation:
    return PairObservation(one, two, "V100", 1, rate, other, 10_000, 10_000, 0)


def test_a_pair_counts_with_its_lower_rates_or_not_at_all() -> None:
    three, tens = np.arange(3), np.full(3, 10.0)
    lows = np.array([6.0, 6.0, 4.0]), np.array([5.0, 5.0, 5.0])
    found = counted_on(PairEstimates(three, three, three, *lows, tens, tens, np.array([1.0, 0.5, 1.0])))
    assert found.first.tolist() == [0]  # the second may not fit, the third does not surely gain
    assert (found.rate_first.tolist(), found.rate_second.tolist()) == ([6.0], [5.0])


def test_a_book_that_knows_nothing_of_pairs_counts_on_none() -> None:
    assert not len(together(book(), JOBS, [("V100", 1)]).way)


def test_measured_pairs_that_gain_are_counted_on_and_others_are_not() -> None:
    known = book(shared("a1", "a2", 9.0, 9.0), shared("a1", "b1", 4.0, 4.0))
    found = together(known, JOBS, [("V100", 1)])
    assert (found.first.tolist(), found.second.tolist(), found.way.tolist()) == ([0], [0], [0])
    assert 8.0 < found.rate_first[0] < 9.0
    missed = book(shared("a1", "b1", 9.0, 9.0), PairMisfit("a1", "a2", "V100", 1, 0))
    assert together(missed, JOBS, [("V100", 1)]).second.tolist() == [1]


def test_a_plan_with_the_pairs_of_a_book_shares_gpus() -> None:
    pairs = together(book(shared("a1", "a2", 9.0, 9.0)), JOBS, [("V100", 1)])
    jobs = collection(np.full((2, 1), 10.0), Supply(np.ones(1), np.ones(1)), kind=np.zeros(2, np.int64), together=pairs)
    assert solve(max_min_fairness(jobs)).rates == pytest.approx(pairs.rate_first[0])


def test_a_kind_with_one_job_has_no_pair_of_its_own() -> None:
    found = together(book(shared("a1", "a2", 9.0, 9.0)), [JOBS[0][:1]], [("V100", 1)])
    assert not len(found.way)


def test_a_job_that_is_faster_beside_another_than_estimated_alone_gains_nothing_by_sharing() -> None:
    none, ten = np.zeros(1, np.int64), np.full(1, 10.0)
    slow, fast = (
        counted_on(PairEstimates(none, none, none, np.full(1, 40.0), np.full(1, other), ten, ten, np.ones(1)))
        for other in (0.0, 5.0)
    )
    assert not len(slow.way)
    assert (fast.rate_first.tolist(), fast.rate_second.tolist()) == ([10.0], [5.0])
