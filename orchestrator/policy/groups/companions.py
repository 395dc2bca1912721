"""Companions: which pairs of jobs a policy may count on to share GPUs, from estimates of their rates.

Two jobs that take turns on a GPU have one GPU between them. Sharing helps if the two relative rates (beside the other
job, relative to alone) add up to more than 1. A pair is counted on only if that holds at the *lower* ends of both 90 %
intervals and its memory is likely to fit; the policy then uses those lower rates.

There are two reasons for this caution. A policy looks for the best pairs, and so finds those that were overestimated.
And under a fairness policy, a single job that gets less than planned makes the whole plan worse, while leaving out a
pair costs only its gain (benchmarks/colocation.py). The lower end of a measured pair is close to its real rate. If a
rate beside another job is above the estimated rate alone, the estimate is too low, because sharing does not make a job
faster: the rate counts as the estimated rate alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.model import Job
from orchestrator.perf import InstanceKind, PerfBook
from orchestrator.policy.groups.collection import Together
from orchestrator.policy.groups.problem import Floats, Integers

LEAST_FIT = 0.9
"""The least probability that the memory of a pair fits."""


@dataclass(frozen=True, slots=True)
class PairEstimates:
    """Pairs as in `Together`, all arrays (pairs,): the 5th percentiles of their rates in steps/s, the rates of both
    jobs alone there, and the probability `fits` that their memory fits."""

    first: Integers
    second: Integers
    way: Integers
    low_first: Floats
    low_second: Floats
    alone_first: Floats
    alone_second: Floats
    fits: Floats


def counted_on(pairs: PairEstimates) -> Together:
    """The pairs that help at the lower ends of their intervals and whose memory is likely to fit, with those lower
    rates."""
    first, second = np.minimum(pairs.low_first, pairs.alone_first), np.minimum(pairs.low_second, pairs.alone_second)
    use = (first / pairs.alone_first + second / pairs.alone_second > 1) & (pairs.fits >= LEAST_FIT)
    return Together(pairs.first[use], pairs.second[use], pairs.way[use], first[use], second[use])


def together(book: PerfBook, jobs: Sequence[Sequence[Job]], ways: Sequence[InstanceKind]) -> Together:
    """The pairs to count on, according to a PerfBook.

    `jobs`: the jobs of each kind of a collection, of which the first two represent all. `ways`: the GPUs of each way. A
    pair of one kind needs two jobs of it. Raises KeyError for an unknown GPU.
    """
    kinds = range(len(jobs))
    pairs = [(one, two) for one in kinds for two in kinds if one < two or (one == two and len(jobs[one]) > 1)]
    asked = [(jobs[one][0], jobs[two][1 if one == two else 0]) for one, two in pairs]
    rows: list[tuple[float, ...]] = []
    for way, kind in enumerate(ways):
        alone = [book.estimate_kind(of[0], *kind).value for of in jobs]
        for (one, two), found in zip(pairs, book.beside_many(asked, kind), strict=True):
            lows = found.first.low, found.second.low
            rows.append((one, two, way, *lows, alone[one], alone[two], found.fits_probability))
    columns = np.array(rows).reshape(len(rows), 8).T
    return counted_on(PairEstimates(*(column.astype(np.int64) for column in columns[:3]), *columns[3:]))
