"""Results of a back-test: per policy the cost over the optimum, paired differences with intervals, and the sources of
its savings. Frozen dataclasses, also for JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from orchestrator.arena.runner import Case, Played
from orchestrator.arena.scenario import Scenario
from orchestrator.arena.ticks import Outcome

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy over all runs. Amounts are means per run and per machine of the gang.

    `over_optimum` is the mean over cells (trace, job) of cost over optimum, both summed over starts; `p95` and `worst`
    are over single runs. `difference_nano_usd` is the mean of (policy - reference) on the same windows, with its 95 %
    bootstrap interval. The four savings add up to on-demand's cost minus this policy's: spot in the first zone, the
    choice of zone (and so region and cloud) at the start, the choice of machine kind at the start, and everything later
    (waiting, failing over, moving, buying). All but the last two use the trace's first kind. A policy that failed in
    all runs has no ratios, and its amounts are 0.
    """

    policy: str
    runs: int
    missed: int
    failed: int
    over_optimum: float | None
    p95: float | None
    worst: float | None
    cost_nano_usd: int
    difference_nano_usd: int
    difference_low_nano_usd: int
    difference_high_nano_usd: int
    saved_by_spot_nano_usd: int
    saved_by_zone_nano_usd: int
    saved_by_gpu_nano_usd: int
    saved_by_moving_nano_usd: int
    egress_nano_usd: int
    moves: float
    preemptions: float
    useful: float
    stretch: float


@dataclass(frozen=True, slots=True)
class Backtest:
    """The results of one scenario. `filled_ticks` counts filled ticks inside the windows of all runs.

    `assumed_runs` counts runs on price-only traces, whose capacity is assumed.
    """

    kind: ClassVar[str] = "backtest"

    name: str
    reference: str
    runs: int
    inexact_optima: int
    filled_ticks: int
    assumed_runs: int
    optimum_nano_usd: int
    on_demand_nano_usd: int
    policies: tuple[PolicyResult, ...]
    failures: tuple[str, ...]


def summarise(scenario: Scenario, played: Sequence[Played]) -> Backtest:
    """Summarise a scenario's runs."""
    return Backtest(
        name=scenario.name,
        reference=scenario.reference,
        runs=len(played),
        inexact_optima=sum(not run.optimum.exact for run in played),
        filled_ticks=sum(run.window.filled for run in played),
        assumed_runs=sum(run.window.assumed for run in played),
        optimum_nano_usd=_nano([run.optimum.usd for run in played]),
        on_demand_nano_usd=_nano([run.on_demand.usd for run in played]),
        policies=tuple(_policy(choice.label, scenario.reference, played) for choice in scenario.policies),
        failures=tuple(message for run in played for message in run.failures.values()),
    )


def _policy(label: str, reference: str, played: Sequence[Played]) -> PolicyResult:
    runs = [run for run in played if label in run.outcomes]
    outcomes = [run.outcomes[label] for run in runs]
    costs = np.array([outcome.usd for outcome in outcomes])
    optima = np.array([run.optimum.usd for run in runs])
    paired = np.array(
        [run.outcomes[label].usd - run.outcomes[reference].usd for run in runs if reference in run.outcomes]
    )
    low, high = bootstrap(paired)
    ratios = costs / optima
    on_demand, home, at_start, any_kind = (np.array([getattr(run, part).usd for run in runs]) for part in _PARTS)
    return PolicyResult(
        policy=label,
        runs=len(runs),
        missed=sum(not outcome.finished for outcome in outcomes),
        failed=len(played) - len(runs),
        over_optimum=_over_cells(runs, outcomes) if runs else None,
        p95=float(np.quantile(ratios, 0.95)) if runs else None,
        worst=float(ratios.max()) if runs else None,
        cost_nano_usd=_nano(costs),
        difference_nano_usd=_nano(paired),
        difference_low_nano_usd=_nano([low]),
        difference_high_nano_usd=_nano([high]),
        saved_by_spot_nano_usd=_nano(on_demand - home),
        saved_by_zone_nano_usd=_nano(home - at_start),
        saved_by_gpu_nano_usd=_nano(at_start - any_kind),
        saved_by_moving_nano_usd=_nano(any_kind - costs),
        egress_nano_usd=_nano([outcome.egress_usd for outcome in outcomes]),
        moves=_mean([outcome.moves for outcome in outcomes]),
        preemptions=_mean([outcome.preemptions for outcome in outcomes]),
        useful=_mean([outcome.useful for outcome in outcomes]),
        stretch=_mean(
            [
                outcome.ticks_used * run.window.tick_ms / 3_600_000 / run.case.job.work_h
                for run, outcome in zip(runs, outcomes, strict=True)
            ]
        ),
    )


_PARTS = ("on_demand", "home", "at_start", "any_kind")


def bootstrap(differences: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """The 95 % interval of the mean by resampling pairs. Deterministic."""
    values = np.asarray(differences, np.float64)
    if values.size == 0:
        return 0.0, 0.0
    chosen = np.random.default_rng(0).integers(0, values.size, (RESAMPLES, values.size))
    low, high = np.quantile(values[chosen].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def _over_cells(runs: Sequence[Played], outcomes: Sequence[Outcome]) -> float:
    sums: dict[Case, list[float]] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        cell = sums.setdefault(Case(run.case.trace, run.case.job, 0), [0.0, 0.0])
        cell[0] += outcome.usd
        cell[1] += run.optimum.usd
    return _mean([cost / least for cost, least in sums.values()])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def _nano(usd: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    return round(float(np.mean(usd)) * 1e9) if len(usd) else 0
