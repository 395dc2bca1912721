"""Companions: which pairs of jobs a policy may count on to share GPUs, by estimates of their rates.

Two jobs that take turns on a GPU have together one of it. Sharing helps if the two relative rates, each beside the
other over alone, add up to more than 1. A pair is counted on only if that holds at the *lower* ends of both 90 %
intervals and its memory is likely to fit, and then with those lower rates. A policy looks for the best pairs, and so
finds those that were overestimated; and under a policy of fairness one job with less than it was promised spoils the
whole plan, while a pair that is left out costs only what it would have gained (benchmarks/colocation.py). The lower end
of a pair that was measured is close to what it does. A rate beside another job that is above the estimated rate alone
shows that the estimate is too low, and not that sharing makes a job faster: it counts as the estimated rate alone.
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
    """Pairs as in `Together`, all (pairs,): the 5th percentiles of their rates in steps/s, the rates of both alone
    there, and the probability `fits` that their memory fits."""

    first: Integers
    second: Integers
    way: Integers
    low_first: Floats
    low_second: Floats
    alone_first: Floats
    alone_second: Floats
    fits: Floats


def counted_on(pairs: PairEstimates) -> Together:
    """The pairs that help at the lower ends of their intervals and are likely to fit, with the rates there."""
    first, second = np.minimum(pairs.low_first, pairs.alone_first), np.minimum(pairs.low_second, pairs.alone_second)
    use = (first / pairs.alone_first + second / pairs.alone_second > 1) & (pairs.fits >= LEAST_FIT)
    return Together(pairs.first[use], pairs.second[use], pairs.way[use], first[use], second[use])


def together(book: PerfBook, jobs: Sequence[Sequence[Job]], ways: Sequence[InstanceKind]) -> Together:
    """The pairs to count on, by a book. `jobs`: the jobs of each kind of a collection, of which the first two stand for
    all; `ways`: the GPUs of each way. Two of one kind need two jobs. Raises KeyError for an unknown GPU."""
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
