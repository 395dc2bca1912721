"""The model of jobs that share a GPU, on Gavel's published pairs: each family of models is new to it in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks._colocated import read_colocated
from benchmarks._colocation_errors import families_left_out, random_pairs, sampled
from orchestrator.perf import Fitted, MemoryTogether
from tests.shared_data import shared


def test_a_new_family_is_predicted_better_than_by_the_mean_and_intervals_hold() -> None:
    table = read_colocated(shared("jobs/throughputs_colocated.csv").parent)
    fewer = replace(table, cells=sampled(table.cells, 0.5, 0))
    (judged,) = families_left_out(fewer, (0.1,), quick=True)
    assert np.median(judged.error["ours"]) < np.median(judged.error["mean"]) / 2
    assert 0.85 <= judged.inside.mean() <= 0.95


def test_pairs_left_out_at_random_are_predicted_better_than_by_gavels_estimator() -> None:
    table = read_colocated(shared("jobs/throughputs_colocated.csv").parent)
    judged = random_pairs(table, 0.1, 0, quick=True)
    assert np.median(judged.error["ours"]) < np.median(judged.error["Gavel"])
    assert 0.85 <= judged.inside.mean() <= 0.95


def test_memory_that_adds_up_explains_which_pairs_fit() -> None:
    table = read_colocated(shared("jobs/throughputs_colocated.csv").parent)
    of = table.family
    rows = [Fitted(one, of[one], two, of[two], kind, False) for one, two, kind in table.misfits]
    rows += [Fitted(c.of.job, c.of.family, c.of.other, c.of.other_family, c.of.kind, True) for c in table.cells]
    rows = sorted(set(rows), key=repr)
    known, unseen = rows[::3], rows[1::3]
    memory = MemoryTogether(known, {})
    right = [
        (memory.probability((row.job, row.family), (row.other, row.other_family), row.kind) >= 0.5) == row.fits
        for row in unseen
    ]
    assert np.mean(right) > np.mean([row.fits for row in unseen])
    assert np.mean(right) > 0.95
