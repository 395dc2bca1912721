"""The cost of the interval between checkpoints on machines that are preempted: checkpoints and lost work.

    python -m benchmarks.interval [--quick] [--json] [--seed N]

The cost of a checkpoint is measured (ResNet-50 with its optimizer, trainers.checkpoint.background). The rest is
simulated: 24 markets, each with a machine that trains for 60 days and is lost at random moments, 30 minutes to 24 hours
apart on average; two of the markets change halfway. A restart takes 120 s. In a market, all rules have the same losses.
The cost of a rule is the time of its checkpoints plus the lost work that is repeated.

- Tradewind: trainers.loop.cadence, given the market's estimate of the losses (orchestrator.market.availability), which
  begins with the product's prior.
- The same rule, given the true rates: the difference to the best fixed interval is luck.
- CheckFreq (Mohan et al., FAST 2021; its code): a checkpoint whenever the last one is durable, then two steps less
  often while checkpoints take more than 3.5 % of the time; never more often again.
- Every 15 minutes, every 60 minutes.
- The best fixed interval of each market, found in hindsight with all losses known. A rule that follows a change may be
  better.

--quick: the cost is measured over fewer checkpoints.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._claims import Claim, show
from benchmarks.checkpoint_overhead import BUDGET, STEP_S, measured, ours, resnet50
from orchestrator.engine.inputs.market_reader import AVAILABILITY_WINDOW_MS
from orchestrator.market.availability import CapacityHistory, hazard_per_hour
from trainers.control import Risk
from trainers.loop.cadence import Cadence

HOUR_S = 3600.0
LASTS_S, RESTART_S = 60 * 24 * HOUR_S, 120.0
MeanS = Callable[[float], float]
"""The mean lifetime of a machine at a time."""


def _markets() -> dict[str, MeanS]:
    means: dict[str, MeanS] = {}
    for number in range(22):
        hours = 0.5 * 48 ** (number / 21)
        means[f"{hours:.1f} h"] = lambda _, hours=hours: hours * HOUR_S  # type: ignore[misc]
    means["24 h, then 1 h"] = lambda at: (24 if at < LASTS_S / 2 else 1) * HOUR_S
    means["1 h, then 24 h"] = lambda at: (1 if at < LASTS_S / 2 else 24) * HOUR_S
    return means


MARKETS = _markets()
ROUNDS, QUICK_ROUNDS = 6, 2
LossesPerHour = Callable[[int, float], float]
"""The expected loss rate after this many machines of a market, for a machine that has lived for this many seconds."""


@dataclass(frozen=True)
class Save:
    """A checkpoint: it costs `cost_s` of training, and is durable `durable_s` after it began."""

    cost_s: float
    durable_s: float


def lives(mean_s: MeanS, chance: random.Random) -> list[float]:
    """The lifetime of each machine of a market."""
    at, since, found = 0.0, 0.0, []
    while at < LASTS_S:
        ends = at + chance.expovariate(1 / mean_s(at))
        if at < LASTS_S / 2 < ends and mean_s(at) != mean_s(ends):
            at = LASTS_S / 2  # the market changes: losses after this time are redrawn; earlier ones stay
            continue
        at = ends
        found.append(at - since)
        since = at
    return found


def true_rate(mean_s: MeanS, found: Sequence[float]) -> LossesPerHour:
    """The true rates, unknown to every rule."""
    ends = [0.0, *itertools.accumulate(found)]
    return lambda number, alive_s: HOUR_S / mean_s(ends[number] + alive_s)


def tuned_s(found: Sequence[float], save: Save, losses_per_h: LossesPerHour) -> float:
    """Seconds of checkpoints and of lost work, over all machines of a market, with Tradewind's interval for these
    rates."""
    cadence = Cadence(BUDGET, 0.0)
    cadence.saved_beside(save.cost_s, save.durable_s)
    total = 0.0
    for number, life_s in enumerate(found):
        at, trained, begun = min(RESTART_S, life_s), 0.0, list[tuple[float, float]]()
        while at < life_s:
            cadence.risk = Risk(losses_per_h(number, at))
            wait_s = min(max(cadence.interval_s(), save.durable_s - save.cost_s), life_s - at)
            at, trained = at + wait_s, trained + wait_s
            if at < life_s:
                begun.append((at + save.durable_s, trained))
                held_s = min(save.cost_s, life_s - at)
                at, total = at + held_s, total + held_s
        total += trained - next((done for durable, done in reversed(begun) if durable <= life_s), 0.0)
    return total


def expected(found: Sequence[float]) -> LossesPerHour:
    """The control plane's estimate for a market from its losses of the last 30 days, as in the product."""
    ends = np.concatenate([[0.0], np.cumsum(found)]).tolist()

    def losses_per_h(number: int, alive_s: float) -> float:
        now_s = ends[number] + alive_s
        since_s = max(now_s - AVAILABILITY_WINDOW_MS / 1000, 0.0)
        losses = number - bisect.bisect_right(ends, since_s, hi=number + 1) + 1
        return hazard_per_hour(CapacityHistory(losses=losses, exposure_ms=round(1000 * (now_s - since_s))), spot=True)

    return losses_per_h


def fixed_s(found: Sequence[float], save: Save, every_s: float) -> float:
    """The same for a fixed interval."""
    least_s = max(every_s, save.durable_s - save.cost_s)
    left = np.maximum(np.asarray(found) - RESTART_S, 0.0)
    cycle = least_s + save.cost_s
    whole = np.floor(left / cycle)
    rest = left - whole * cycle
    paused = whole * save.cost_s + np.maximum(rest - least_s, 0.0)
    durable = np.clip(np.floor((left - save.durable_s + save.cost_s) / cycle), 0, None)
    return float(np.sum(paused + (left - paused) - durable * least_s))


def checkfreq_s(save: Save) -> float:
    """The interval at which CheckFreq's rule settles."""
    steps = max(math.ceil((save.durable_s - save.cost_s) / STEP_S), 1)
    while save.cost_s / (steps * STEP_S) > BUDGET:
        steps += 2
    return steps * STEP_S


def compared(save: Save, seed: int) -> tuple[list[Claim], list[str]]:
    """The claims, and a line for each market."""
    fixed = {"CheckFreq": checkfreq_s(save), "every 15 min": 900.0, "every 60 min": 3600.0}
    grid = np.geomspace(max(save.durable_s - save.cost_s, 1.0), 6 * HOUR_S, 400)
    ratios: dict[str, list[float]] = {name: [] for name in ("Tradewind", "true rate", *fixed)}
    lines = []
    for market, mean_s in MARKETS.items():
        found = lives(mean_s, random.Random(f"{seed} {market}"))
        best_s, best_every_s = min((fixed_s(found, save, every_s), every_s) for every_s in grid)
        costs = {"Tradewind": tuned_s(found, save, expected(found))}
        costs["true rate"] = tuned_s(found, save, true_rate(mean_s, found))
        costs |= {name: fixed_s(found, save, every_s) for name, every_s in fixed.items()}
        for name, each_s in costs.items():
            ratios[name].append(each_s / best_s)
        said = ", ".join(f"{name} {each_s / best_s:.2f}" for name, each_s in costs.items())
        lines.append(f"{market}: {len(found)} losses, best every {best_every_s:.0f} s ({best_s / LASTS_S:.2%}): {said}")
    own = ratios["Tradewind"]
    claims = [
        Claim("Tradewind over the best fixed interval, mean of the markets", statistics.mean(own), "x", 1.05),
        Claim("Tradewind over the best fixed interval, worst market", max(own), "x", 1.2),
    ]
    for name in list(ratios)[1:]:
        claims.append(Claim(f"{name} over the best fixed interval, mean", statistics.mean(ratios[name]), "x"))
        claims.append(Claim(f"{name} over the best fixed interval, worst", max(ratios[name]), "x"))
    return claims, lines


def measured_save(rounds: int) -> Save:
    """The cost of a checkpoint on this machine."""
    with tempfile.TemporaryDirectory() as folder, ours(Path(folder)) as own:
        cost = measured(resnet50(), {"Tradewind": own}, rounds)["Tradewind"]
    return Save(max(cost.typical_s, 0.01), max(statistics.median(cost.durable_s), 0.01))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"measure {QUICK_ROUNDS} checkpoints instead of {ROUNDS}")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--seed", type=int, default=1, help="of the losses")
    options = parser.parse_args()
    load, save = os.getloadavg()[0], measured_save(QUICK_ROUNDS if options.quick else ROUNDS)
    claims, lines = compared(save, options.seed)
    claims += [
        Claim("a checkpoint costs (measured)", save.cost_s, "s"),
        Claim("and is durable after (measured)", save.durable_s, "s"),
    ]
    notes = [*lines, f"Losses are simulated. Load of the machine: {load:.1f} on {os.cpu_count()} cores."]
    return show("The interval between checkpoints", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
