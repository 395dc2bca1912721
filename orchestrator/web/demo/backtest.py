"""Back-tests of policies on the generated market, played by the back-tester and kept as `backtest --keep` does."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import numpy as np

from orchestrator.arena.results import summarise
from orchestrator.arena.runner import run
from orchestrator.arena.scenario import JobShape, PolicyChoice, Scenario, TraceSource
from orchestrator.reports.backtests import keep
from orchestrator.web.demo.market import HOUR_MS, DemoMarket
from providers.money import NANO_USD

TICK_MS = 600_000
MARKETS = (  # name, machine type
    ("generated market: V100 at AWS", "p3.2xlarge"),
    ("generated market: A100 at Google Cloud", "a2-highgpu-1g"),
)
JOBS = (
    JobShape(work_h=30.0, deadline_h=34.0, overhead_h=0.2, checkpoint_gb=50.0),
    JobShape(work_h=30.0, deadline_h=45.0, overhead_h=0.2, checkpoint_gb=50.0),
)
POLICIES = ("deadline", "greedy", "uniform-progress", "skypilot-failover", "daily", "static-in-hindsight")
UP_H, DOWN_H = 4.0, 3.0
"""Mean hours that a zone has spot machines, and then has none."""


def write_backtests(state_dir: Path, demo: DemoMarket, start_ms: int, now_ms: int, seed: int, starts: int) -> None:
    """Play and keep a back-test of each of MARKETS, with `starts` starts of each of JOBS.

    The traces are kept beside them, so that they can be played again.
    """
    folder = state_dir / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    for name, machine in MARKETS:
        trace = folder / f"{machine}.npz"
        _write_trace(trace, demo, machine, start_ms, now_ms, seed)
        choices = tuple(PolicyChoice(each) for each in POLICIES)
        scenario = Scenario(name, (TraceSource(trace),), JOBS, starts, choices, "greedy")
        kept = keep(state_dir, summarise(scenario, run(scenario)))
        os.utime(kept, (now_ms / 1000, now_ms / 1000))


def _write_trace(path: Path, demo: DemoMarket, machine: str, start_ms: int, now_ms: int, seed: int) -> None:
    """The market of a machine type in the back-tester's format: a row per zone and a column per tick."""
    offers = [each for each in demo.offers if each.instance_type == machine]
    on_demand = {each.zone: each for each in offers if not each.spot}
    spot = sorted((each for each in offers if each.spot), key=lambda each: each.zone)
    ticks = range(start_ms, now_ms, TICK_MS)
    np.savez_compressed(
        path,
        zones=np.array([each.zone for each in spot]),
        capacity=np.array([_capacity(Random(f"{seed} {each.id} capacity"), len(ticks)) for each in spot]),
        spot_price=_prices(demo, [each.id for each in spot], ticks),
        on_demand_price=_prices(demo, [on_demand[each.zone].id for each in spot], ticks[:1])[:, 0],
        tick_seconds=np.array(TICK_MS / 1000),
    )


def _prices(demo: DemoMarket, offer_ids: list[str], ticks: range) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """US$ per hour."""
    return np.array([[demo.price_at(name, at_ms) / NANO_USD for at_ms in ticks] for name in offer_ids])


def _capacity(at: Random, ticks: int) -> list[int]:
    """Whether a machine is available in each tick."""
    found: list[int] = []
    up = at.random() < UP_H / (UP_H + DOWN_H)
    while len(found) < ticks:
        hours = at.expovariate(1 / (UP_H if up else DOWN_H))
        found += [int(up)] * max(1, round(hours * HOUR_MS / TICK_MS))
        up = not up
    return found[:ticks]
