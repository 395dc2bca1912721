"""Choosing a GPU kind by dollars per step: total cost over the oracle's, with one kind measured and the rest predicted.

26 single-GPU job kinds of Gavel's table (K80, P100, V100). Each kind in turn is measured; the others are predicted from
jobs of *other model families*. Prices: 2020 list prices, each times 2^U(-1,1), seeded. A probe of another kind is
billed for 8 minutes, and its training does not count. The code is the product's: orchestrator/perf fits and predicts,
orchestrator/policy/probe decides. Nothing is tuned to these jobs: the fit uses only the training families.

Then ratios between GPUs at 16 bits, as published 2021 to 2026, each model left out in turn (benchmarks/_ratios.py), and
the shipped model's predictions for other GPUs from a measured A100-80GB.

Sources of the rates: stanford-futuredata/gavel (MIT), Narayanan et al. 2020; those named in
orchestrator/perf/fitted.py.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import benchmarks._one_thread  # noqa: F401  isort: skip
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks._claims import Claim, show
from benchmarks._published import read_published, source_of
from benchmarks._ratios import Predicted, gpu_left_out, left_out, one_ratio_per_pair
from orchestrator.perf import FITTED_NARROW, Cell, Floats, InstanceKind, Posterior, RatioModel, Row, fit
from orchestrator.policy.probe import PROBE_MINUTES, Option, advise
from orchestrator.services.speed.throughput_tables import read_table

SHARED = Path(os.environ.get("TRADEWIND_SHARED", Path(__file__).parents[2] / "shared"))
KINDS: tuple[InstanceKind, ...] = (("K80", 1), ("P100", 1), ("V100", 1))
LIST_PRICES = np.array([0.90, 1.84, 3.06])  # USD per hour, 2020: p2.xlarge, GCP n1 + P100, p3.2xlarge
SIZES_V100_H = (0.5, 2, 8, 24, 96)
TARGETS = (1.24, 1.165, 1.06, 1.025, 1.006)
MEASURED_VARIANCE = 1e-4  # rates are accurate to 1 %
PUBLISHED = SHARED / "jobs" / "llm_throughputs.csv"
ISOLATED = SHARED / "jobs" / "throughputs_isolated.csv"
RATIO_MEDIAN_PCT, RATIO_P90_PCT = 15.0, 35.0
OTHERS = ("T4", "L4", "A10G", "V100", "L40S", "A100-40GB", "H100", "H200", "B200", "GB200", "MI300X")
SEED = 0
NANO = 1e9


@dataclass(frozen=True)
class Job:
    """`log_rates` of the three kinds; the job's `family` is left out of all its predictions."""

    name: str
    family: str
    log_rates: Floats


@dataclass(frozen=True)
class Case:
    """One job and one measured kind, with the prior knowledge and the true rates."""

    job: Job
    measured: int
    training: Floats  # log rates of the jobs of other families, by (job, kind)
    model: RatioModel

    def posterior(self, *probed: int) -> Posterior:
        """The posterior of the rates on all kinds when the measured kind and these are known to 1 %."""
        known = (self.measured, *probed)
        return self.model.posterior(
            KINDS, [Cell(KINDS[kind], float(self.job.log_rates[kind]), MEASURED_VARIANCE) for kind in known]
        )

    def cost(self, prices: Floats) -> Floats:
        """USD per V100-hour of work, by (price vector, kind)."""
        cost: Floats = prices * np.exp(self.job.log_rates[2] - self.job.log_rates)
        return cost


def read() -> tuple[list[Job], list[Row]]:
    """The single-GPU jobs to evaluate, and all rows; the fit for a job uses only rows of other families."""
    rows = read_table(ISOLATED).rows
    rates: dict[str, dict[InstanceKind, float]] = {}
    families = {}
    for row in rows:
        rates.setdefault(row.job, {})[row.kind] = math.log(row.steps_per_s)
        families[row.job] = row.family
    jobs = [
        Job(name, families[name], np.array([of[kind] for kind in KINDS]))
        for name, of in sorted(rates.items())
        if all(kind in of for kind in KINDS)
    ]
    return jobs, list(rows)


def cases(jobs: list[Job], rows: list[Row]) -> Iterable[Case]:
    models = {name: fit(row for row in rows if row.family != name) for name in sorted({job.family for job in jobs})}
    for job in jobs:
        training = np.array([other.log_rates for other in jobs if other.family != job.family])
        for measured in range(len(KINDS)):
            yield Case(job, measured, training, models[job.family])


# Strategies: (case, price vectors in USD/h, size in V100-hours) -> total USD per price vector


def ours(case: Case, prices: Floats, size: float, *, probes: bool = True) -> Floats:
    """The product: predict, probe if it pays, predict again, commit."""
    steps = size * 3600 * math.exp(case.job.log_rates[2])
    posteriors: dict[tuple[int, ...], Posterior] = {}
    total = np.zeros(len(prices))
    truth = size * case.cost(prices)
    for at, price in enumerate(prices * NANO):
        probed: tuple[int, ...] = ()
        while True:
            if probed not in posteriors:
                posteriors[probed] = case.posterior(*probed)
            options = [
                Option(
                    kind,
                    float(price[i]),
                    probe_nano_usd=float(price[i]) * PROBE_MINUTES / 60,
                    measured=i == case.measured or i in probed,
                )
                for i, kind in enumerate(KINDS)
            ]
            advice = advise(posteriors[probed], options, steps=steps, allowed=probes)
            if advice.probe is None:
                break
            total[at] += advice.cost_nano_usd / NANO
            probed = (*probed, advice.probe)
        total[at] += truth[at, advice.commit]
    return total


def mean_ratios(case: Case, prices: Floats, size: float) -> Floats:
    """Scale the measured rate by the geometric mean ratio of the other families' jobs; never probe."""
    ratio = (case.training - case.training[:, [case.measured]]).mean(axis=0)
    rate = np.exp(case.job.log_rates[case.measured] + ratio)
    return _chosen(size * case.cost(prices), (prices / rate).argmin(axis=1))


def probing_always(case: Case, prices: Floats, size: float) -> Floats:
    """Probe both other kinds, then take the best."""
    others = [kind for kind in range(len(KINDS)) if kind != case.measured]
    total: Floats = prices[:, others].sum(axis=1) * PROBE_MINUTES / 60 + size * case.cost(prices).min(axis=1)
    return total


def simple_value(case: Case, prices: Floats, size: float) -> Floats:
    """The textbook rule: each ratio is independently normal, with the other jobs' spread; looks one probe ahead."""
    ratios = case.training - case.training[:, [case.measured]]
    mean = case.job.log_rates[case.measured] + ratios.mean(axis=0)
    spread = ratios.std(axis=0, ddof=1)
    slices = np.array([NormalDist().inv_cdf((i + 0.5) / 24) for i in range(24)])
    work = size * math.exp(case.job.log_rates[2])
    shown = np.exp(-(mean[:, None] + spread[:, None] * slices))  # 1 / rate, by (kind, slice)
    truth = size * case.cost(prices)
    total = np.zeros(len(prices))
    for at, price in enumerate(prices):
        known = {case.measured}
        while True:
            costs = work * price[:, None] * shown
            expected = np.where([k in known for k in range(len(KINDS))], truth[at], costs.mean(axis=1))
            gains = {
                kind: expected.min()
                - np.minimum(np.delete(expected, kind).min(), costs[kind]).mean()
                - price[kind] * PROBE_MINUTES / 60
                for kind in range(len(KINDS))
                if kind not in known
            }
            best = max(gains, key=gains.__getitem__, default=None)
            if best is None or gains[best] <= 0:
                total[at] += truth[at, expected.argmin()]
                break
            total[at] += price[best] * PROBE_MINUTES / 60
            known.add(best)
    return total


def cheapest_per_hour(case: Case, prices: Floats, size: float) -> Floats:
    return _chosen(size * case.cost(prices), prices.argmin(axis=1))


def _chosen(costs: Floats, kind: npt.NDArray[np.intp]) -> Floats:
    chosen: Floats = np.take_along_axis(costs, kind[:, None], axis=1)[:, 0]
    return chosen


def constant_kind(every: list[Case], prices: Floats) -> float:
    """For each price vector, the one kind that is best on average over all jobs, given their true rates."""
    ratios = np.array([case.cost(prices) / case.cost(prices).min(axis=1, keepdims=True) for case in every])
    return float(ratios.mean(axis=0).min(axis=1).mean())


def coverage(every: list[Case]) -> tuple[float, int]:
    """The share of predicted cells that lie within their 90 % interval, and the number of predicted cells."""
    inside = [
        abs(case.job.log_rates[kind] - posterior.mean[kind]) <= posterior.spread(kind)
        for case in every
        for posterior in [case.posterior()]
        for kind in range(len(KINDS))
        if kind != case.measured
    ]
    return float(np.mean(inside)), len(inside)


def ratio_claims(found: list[Predicted]) -> list[Claim]:
    """Claims with targets for jobs whose kind of work is known from a profile; for others without targets."""
    claims = []
    for profiled, name in ((True, "16-bit ratios"), (False, "16-bit ratios, not profiled")):
        asked = [each for each in found if each.profiled == profiled]
        errors = [each.error * 100 for each in asked]
        inside = float(np.mean([each.inside for each in asked])) * 100
        claims += [
            Claim(f"{name}: median error", float(np.median(errors)), "%", RATIO_MEDIAN_PCT),
            Claim(
                f"{name}: 90th percentile of error",
                float(np.quantile(errors, 0.9)),
                "%",
                RATIO_P90_PCT if profiled else None,
            ),
            Claim(f"{name}: 90 % intervals cover, at least", inside, "%", 85.0, least=True),
            Claim(f"{name}: 90 % intervals cover, at most", inside, "%", 95.0),
        ]
    return claims


def elsewhere(name: str, found: list[Predicted]) -> list[Claim]:
    """The same with more left out; reported without targets."""
    claims = []
    for profiled, reported in ((True, ""), (False, ", not profiled")):
        asked = [each for each in found if each.profiled == profiled]
        errors = [each.error * 100 for each in asked]
        claims += [
            Claim(f"{name} left out{reported}: median error", float(np.median(errors)), "%", None),
            Claim(f"{name} left out{reported}: 90th percentile of error", float(np.quantile(errors, 0.9)), "%", None),
            Claim(
                f"{name} left out{reported}: 90 % intervals cover",
                float(np.mean([each.inside for each in asked])) * 100,
                "%",
                None,
            ),
        ]
    return claims


def from_an_a100() -> Table:
    """The shipped model's rates relative to a measured A100-80GB."""
    table = Table("one GPU", "language model, fp16", "bf16", "vision, fp16", title="over a measured A100-80GB")
    kinds = [(name, 1) for name in OTHERS]
    known = [Cell(("A100-80GB", 1), 0.0, MEASURED_VARIANCE)]
    posteriors = [
        FITTED_NARROW.posterior(kinds, known, precision="fp16", sort="matrices"),
        FITTED_NARROW.posterior(kinds, known, precision="bf16", sort="matrices"),
        FITTED_NARROW.posterior(kinds, known, precision="fp16", sort="convolutions"),
    ]
    for i, name in enumerate(OTHERS):
        cells = (
            (posterior.mean[i], posterior.mean[i] - posterior.spread(i), posterior.mean[i] + posterior.spread(i))
            for posterior in posteriors
        )
        table.add_row(name, *("{:.2f} ({:.2f} to {:.2f})".format(*map(math.exp, cell)) for cell in cells))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="25 price vectors instead of 200, 16-bit spreads as shipped"
    )
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    for path in (ISOLATED, PUBLISHED):
        if not path.exists():
            print(f"skipped: needs {path} (TRADEWIND_SHARED names the folder of shared data)", file=sys.stderr)
            return 0
    vectors = 25 if options.quick else 200
    prices = LIST_PRICES * 2 ** np.random.default_rng(SEED).uniform(-1, 1, (200, len(KINDS)))[:vectors]
    jobs, rows = read()
    every = list(cases(jobs, rows))

    strategies: dict[str, Callable[[Case, Floats, float], Floats]] = {
        "cheapest per hour": cheapest_per_hour,
        "mean ratios, no probes": mean_ratios,
        "mean ratios, probing always": probing_always,
        "simple value of information": simple_value,
        "ours, no probes": lambda case, prices, size: ours(case, prices, size, probes=False),
        "ours": ours,
    }
    ratios = {
        name: [
            float(np.mean([run(case, prices, size) / (size * case.cost(prices).min(axis=1)) for case in every]))
            for size in SIZES_V100_H
        ]
        for name, run in strategies.items()
        if name == "ours" or not options.json
    }
    ratios["best constant kind, given the prices"] = [constant_kind(every, prices)] * len(SIZES_V100_H)
    if not options.json:
        table = Table("mean cost over the oracle's", *(f"{size:g} h" for size in SIZES_V100_H), title="V100-hours")
        for name, values in ratios.items():
            table.add_row(name, *(f"{value:.4f}" for value in values))
        Console().print(table)
        Console().print(from_an_a100())
    published, training = read_published(PUBLISHED), read_published(PUBLISHED, idle=False)
    predicted = left_out(published, training, lambda row: row.family, quick=options.quick)
    pairs = [error * 100 for error in one_ratio_per_pair(published)]
    covered, cells = coverage(every)
    claims = [
        *(
            Claim(f"cost over the oracle's, jobs of {size:g} V100-hours", value, "x", target)
            for size, value, target in zip(SIZES_V100_H, ratios["ours"], TARGETS, strict=True)
        ),
        Claim("90 % intervals of left-out rates cover, at least", covered * 100, "%", 85.0, least=True),
        Claim("90 % intervals of left-out rates cover, at most", covered * 100, "%", 95.0),
        *ratio_claims(predicted),
        *elsewhere("whole source", left_out(published, training, source_of, quick=options.quick)),
        *elsewhere("GPU and model", gpu_left_out(published, training)),
    ]
    notes = [
        f"{len(jobs)} jobs x {len(KINDS)} measured kinds x {len(prices)} price vectors (seed {SEED}), whole family of "
        f"models left out; {cells} predicted cells.",
        f"{len(predicted) // 2} ratios of {len({each.family for each in predicted})} models at 16 bits, whole model "
        f"left out; {len(training)} rates to learn from.",
        "The best single ratio for each pair of GPUs, chosen from these same rows, has an error of "
        f"{np.median(pairs):.1f} % (median) and {np.quantile(pairs, 0.9):.1f} % (90th percentile).",
    ]
    return show("Dollars per step", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
