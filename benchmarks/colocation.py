"""Claim: the speed of a job beside another one on a GPU is predicted, with reliable intervals, for pairs that never ran
together. Plans with space sharing that know a part of the pairs come close to plans that know all.

    python -m benchmarks.colocation            refits the model each time without the pairs to predict; 3 minutes of CPU
    python -m benchmarks.colocation --quick    a sample, with the effects and calibration that come with the product

Gavel's table of pairs on K80, P100 and V100 (shared data, or TRADEWIND_SHARED), one GPU each; rates alone are known.
Errors are relative to the true rate beside the other job. The product's model is compared with the mean of the known
slowdowns, half the rate alone, and Gavel's estimator (benchmarks/_colocation_baselines.py), with the same known and
predicted pairs for all. The targets are the results of the best of the others in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np

from benchmarks._claims import Claim, show
from benchmarks._colocated import Colocated, read_colocated
from benchmarks._colocation_errors import METHODS, Judged, families_left_out, model_of, random_pairs
from benchmarks._colocation_worth import WAYS, Truth, few, plans, simulated
from orchestrator.arena.pair_estimates import FixedPairs, LearnedPairs

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")
COVERAGE_PCT, WITHIN_POINTS = 90.0, 5.0
RANDOM_PARTS, FAMILY_PARTS, PLAN_PARTS = (0.1, 0.3, 0.6), (0.0, 0.1, 0.3), (0.0, 0.1, 0.3)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    options = parser.parse_args(arguments)
    folder = SHARED / "jobs"
    if not (folder / "throughputs_colocated.csv").exists():
        reason = f"skipped: needs throughputs_colocated.csv in {folder}; name the shared data with TRADEWIND_SHARED"
        print(json.dumps([]) if options.json else reason)
        if options.json:
            sys.stderr.write(f"{reason}\n")
        return 0
    table = read_colocated(folder)
    claims: list[Claim] = []
    for part in RANDOM_PARTS:
        claims += accuracy(f"{part:.0%} of all pairs known", random_pairs(table, part, 0, quick=options.quick))
    family_parts = FAMILY_PARTS[:2] if options.quick else FAMILY_PARTS
    for part, judged in zip(family_parts, families_left_out(table, family_parts, quick=options.quick), strict=True):
        claims += accuracy(f"a new family, {part:.0%} of its pairs known", judged)
    claims += worth(table, quick=options.quick) + turns(table, quick=options.quick)
    notes = [
        f"{len(table.cells)} rates of {len(table.family)} kinds of jobs, {len(table.misfits)} pairs that do not fit",
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
    ]
    return show("Jobs that share GPUs", claims, as_json=options.json, notes=notes)


def accuracy(name: str, judged: Judged) -> list[Claim]:
    claims = []
    for words, probability in (("median error", 0.5), ("90th percentile of errors", 0.9)):
        error = {method: 100 * float(np.quantile(judged.error[method], probability)) for method in METHODS}
        best = min(error[method] for method in METHODS if method != "ours")
        claims.append(Claim(f"{name}: {words}", error["ours"], "%", best))
        claims += [Claim(f"{name}: {words}, {method}", error[method], "%") for method in METHODS if method != "ours"]
    inside = 100 * float(judged.inside.mean())
    claims.append(Claim(f"{name}: inside the 90 % interval", inside, "%"))
    claims.append(Claim(f"{name}: distance of that from 90 %", abs(inside - COVERAGE_PCT), "points", WITHIN_POINTS))
    for kind in sorted(set(judged.kind.tolist())):
        here = 100 * float(judged.inside[judged.kind == kind].mean())
        claims.append(Claim(f"{name}: inside the 90 % interval on {kind}", here, "%"))
    return claims


def worth(table: Colocated, *, quick: bool) -> list[Claim]:
    """The result of the slowest job of a max-min plan, relative to a plan that knows all pairs."""
    truth, claims = Truth.read(table), []
    for part in PLAN_PARTS:
        seeds, rounds = range(1 if quick else 3), 2 if quick else 4
        found = [plans(truth, partial(model_of, quick=quick), part, seed, rounds) for seed in seeds]
        name = f"max-min plan, {part:.0%} of pairs known, relative to all known"
        mean = {method: np.mean([each[method] for each in found], axis=0) for method in found[0]}
        others = max(float(mean[method][0]) for method in mean if method != "ours")
        claims.append(Claim(name, float(mean["ours"][0]), "", others - 1e-9, least=True))
        claims += [Claim(f"{name}, {method}", float(mean[method][0]), "") for method in mean if method != "ours"]
        later = f"{name}; plan {rounds}, the pairs of earlier plans measured"
        claims += [Claim(f"{later}, {method}", float(mean[method][-1]), "") for method in mean]
    return claims


def turns(table: Colocated, *, quick: bool) -> list[Claim]:
    """Mean completion times of simulated jobs, relative to those without space sharing."""
    truth, found = Truth.read(table), []
    for seed in range(1 if quick else 5):
        sample = few(truth, seed)
        inside = {name for name, _ in sample.kinds}
        model = model_of([cell for cell in table.cells if inside.isdisjoint((cell.of.job, cell.of.other))], quick=quick)
        learned = LearnedPairs(sample.kinds, sample.alone, WAYS, model)
        alone, known, ours = (
            simulated(sample, seed, each) for each in (FixedPairs(), FixedPairs(sample.everything()), learned)
        )
        found.append((known / alone, ours / alone))
    known, ours = np.mean(found, axis=0)
    name = "mean completion time in rounds, relative to no space sharing"
    return [
        Claim(f"{name}: nothing known at the start, learned from pairs that run", float(ours), "", 1.0),
        Claim(f"{name}: all pairs known", float(known), ""),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
