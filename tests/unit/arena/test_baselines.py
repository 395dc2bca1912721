"""Published policies: what tells them apart, and that they never miss; and the reference results, where they are."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from orchestrator.sim.arena.baselines.registry import BASELINES
from orchestrator.sim.arena.baselines.static import OneZone
from orchestrator.sim.arena.formats import load
from orchestrator.sim.arena.optimum import optimum
from orchestrator.sim.arena.protocol import ON_DEMAND, SPOT
from orchestrator.sim.arena.ticks import Task, play
from tests.shared_data import shared
from tests.unit.arena.worlds import task, trace


@pytest.mark.parametrize("name", BASELINES)
def test_no_baseline_misses_or_beats_the_optimum(name):
    generator = np.random.default_rng(7)
    for slack in (1.08, 1.5, 2.5):
        up = (np.cumsum(generator.random((3, 90)) < 0.1, axis=1) + generator.integers(0, 2, (3, 1))) % 2
        window = trace(up, np.repeat(generator.uniform(0.5, 2, (3, 9)), 10, axis=1)).window(0, 90)
        job = task(90 / slack - 3, 90, 1.3, gb=20)
        done = play(BASELINES[name](), job, window)
        assert done.finished
        assert done.usd >= optimum(job, window).usd - 1e-9
        assert done.useful <= 1


def zones_of(name, up, spot, ticks=12):
    track = play(BASELINES[name](), task(5, ticks, 0.5), trace(up, spot).window(0, ticks)).track
    return [None if place is None else place[0] for place in track]


def test_where_they_go_when_a_machine_is_lost():
    """us-east-1a is lost for a tick; 1b, in the same region, is dearer than us-west-2a."""
    up = [[1, 1, 0, *[1] * 9], [1] * 12, [1] * 12]
    spot = [[1.0] * 12, [1.6] * 12, [1.2] * 12]
    assert zones_of("skypilot-failover", up, spot)[2] == 1
    assert zones_of("skypilot-eager", up, spot)[2] == 2
    assert zones_of("sagemaker-zone-switch", up, spot)[2] == 1
    assert zones_of("greedy", up, spot)[2] == 2
    assert zones_of("static-at-start", up, spot)[2:4] == [None, 0]


def test_eager_as_shipped_goes_back_to_the_region_that_was_lost():
    up = [[1, 1, 0, *[1] * 9], [1] * 12, [1] * 12]
    spot = [[1.0] * 12, [1.1] * 12, [1.2] * 12]
    assert zones_of("skypilot-eager", up, spot)[2] == 2
    assert zones_of("skypilot-eager-shipped", up, spot)[2] == 1


def test_who_moves_for_a_lower_price():
    ticks = 6 * 60
    falls = [[1.0] * ticks, [1.0] * ticks, [1.1] * 20 + [0.45] * (ticks - 20)]
    window = trace([[1] * ticks] * 3, falls).window(0, ticks)
    job = task(6 * 40, ticks, 0.5, gb=1)

    def moved_at(name):
        track = play(BASELINES[name](), job, window).track
        return next((tick for tick, place in enumerate(track) if place is not None and place[0] == 2), None)

    assert moved_at("greedy") is None
    assert moved_at("karpenter-balanced") == 20  # the price has more than halved
    assert moved_at("paper-daily") == 6 * 24
    nearly = trace([[1] * ticks] * 3, [[1.0] * ticks, [1.0] * ticks, [1.1] * 20 + [0.6] * (ticks - 20)]).window(
        0, ticks
    )
    assert play(BASELINES["karpenter-balanced"](), job, nearly).moves == 0


def test_one_zone_waits_and_then_buys():
    done = play(OneZone(0), task(4, 10, 0.5), trace([[0] * 10, [1] * 10]).window(0, 10))
    assert done.track[:3] == (None,) * 3
    assert {place for place in done.track if place} == {(0, ON_DEMAND)}
    assert done.finished


def test_uniform_progress_buys_when_it_lags_and_goes_back_when_it_is_ahead():
    up = [[0] * 5 + [1] * 35]
    track = play(BASELINES["uniform-progress"](), task(20, 40, 0.5), trace(up).window(0, 40)).track
    assert (0, ON_DEMAND) in track[:5]
    assert track[-1] == (0, SPOT)


def test_the_reference_results_are_met():
    """Seven of 198 published runs: on-demand and optimum run by run, the others in the mean."""
    folder = shared("traces")
    with (folder / "reference_results.csv").open() as file:
        rows = list(csv.DictReader(file))[::29]
    traces = {name: load(folder / name) for name in {row["file"] for row in rows}}
    ratios = {"greedy_usd": [], "uniform_progress_usd": []}
    for row in rows:
        tape = traces[row["file"]]
        keys = ("work_h", "deadline_h", "restart_overhead_h", "checkpoint_gb")
        work, deadline, overhead, size = (float(row[key]) for key in keys)
        job = Task.of(work, deadline, overhead, size, tape.tick_ms)
        window = tape.window(int(row["start_tick"]), job.ticks, zones=row["zones"].split(), gang=int(row["gang"]))
        assert play(BASELINES["on-demand"](), job, window).usd == pytest.approx(float(row["on_demand_usd"]), rel=1e-3)
        assert optimum(job, window).usd == pytest.approx(float(row["optimum_usd"]), rel=5e-3)
        for column, name in (("greedy_usd", "greedy"), ("uniform_progress_usd", "uniform-progress")):
            ratios[column].append(play(BASELINES[name](), job, window).usd / float(row[column]))
    for column, found in ratios.items():
        assert np.mean(found) == pytest.approx(1, abs=0.02), column
