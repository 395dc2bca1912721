"""The value of estimates of pairs: max-min fairness with space sharing, planned with the estimates and judged by the
true rates.

A plan uses the pairs that an estimate counts on. Its result is the actual progress of its slowest job. Then the pairs
that it used count as measured, and the next plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks._colocated import Colocated
from benchmarks._colocation_baselines import mean_of_table, of_gavel, slowdown
from orchestrator.arena.pair_estimates import LearnedPairs
from orchestrator.arena.rounds import Arrivals
from orchestrator.arena.shared_rounds import Estimates, SharedCluster
from orchestrator.perf import ColocationModel, Floats, InstanceKind, PairCell
from orchestrator.policy.groups import Supply, Together, collection, solve
from orchestrator.policy.groups.companions import LEAST_FIT
from orchestrator.policy.groups.policies.fairness import max_min_fairness, units

WAYS: tuple[InstanceKind, ...] = (("K80", 1), ("P100", 1), ("V100", 1))
JOBS, GPUS_OF_EACH = 150, 22.0
SIMULATED_JOBS, SIMULATED_KINDS, SIMULATED_GPUS = 60, 10, 3.0
MARGIN = 0.8  # of a cautious baseline
Pair = tuple[int, int, int]
Model = Callable[[Sequence[PairCell]], ColocationModel]


@dataclass(frozen=True, slots=True)
class Truth:
    """The table as arrays: `kinds` (name, family); `alone` (kinds, ways) and `beside` (kinds, kinds, ways), steps/s, 0
    where it does not fit."""

    kinds: Sequence[tuple[str, str]]
    alone: Floats
    beside: Floats

    @classmethod
    def read(cls, table: Colocated) -> Truth:
        kinds = sorted(table.family.items())
        number = {name: index for index, (name, _) in enumerate(kinds)}
        alone = np.array([[table.alone.get((name, way), 0.0) for way in WAYS] for name, _ in kinds])
        beside = np.zeros((len(kinds), len(kinds), len(WAYS)))
        for cell in table.cells:
            at = number[cell.of.job], number[cell.of.other], WAYS.index(cell.of.kind)
            beside[at] = slowdown(cell) * alone[at[0], at[2]]
        return cls(kinds, alone, beside)

    def of(self, chosen: np.ndarray) -> Truth:
        """The same table with some of the kinds."""
        kinds = [self.kinds[index] for index in chosen]
        return Truth(kinds, self.alone[chosen], self.beside[np.ix_(chosen, chosen)])

    def rates(self, pair: Pair) -> tuple[float, float]:
        one, two, way = pair
        return float(self.beside[one, two, way]), float(self.beside[two, one, way])

    def cells(self, pairs: Sequence[Pair]) -> list[PairCell]:
        """Both rates of each of these pairs that fits."""
        pairing, cells = LearnedPairs(self.kinds, self.alone, WAYS).pairing, []
        for one, two, way in pairs:
            rates = self.rates((one, two, way))
            if rates[0] > 0:
                both = [((one, two), rates[0]), ((two, one), rates[1])][: 1 + (one != two)]
                cells += [PairCell(pairing(*names, way), float(np.log(rate))) for names, rate in both]
        return cells

    def everything(self) -> Together:
        """All pairs that help, with their true rates."""
        return _together([self.pairs(), *self._both(self.beside)], self.alone)

    def pairs(self) -> np.ndarray:
        """(pairs, 3): kind, kind, way; each combination once."""
        able = self.alone > 0
        one, two, way = np.nonzero(able[:, None, :] & able[None, :, :])
        return np.column_stack([one, two, way])[one <= two]

    def _both(self, table: Floats) -> tuple[Floats, Floats]:
        one, two, way = self.pairs().T
        return table[one, two, way], table[two, one, way]


def _together(columns: Sequence[Floats], alone: Floats) -> Together:
    (one, two, way), first, second = columns[0].T, columns[1], columns[2]
    helps = first / alone[one, way] + second / alone[two, way] > 1
    return Together(one[helps], two[helps], way[helps], first[helps], second[helps])


class Guesses:
    """A policy that believes a baseline's guesses: `guess` gives slowdowns (pairs,) from measured cells. A `cautious`
    one subtracts 20 %, and uses the product's model to decide whether the memory fits."""

    def __init__(self, truth: Truth, guess: Callable[..., Floats], *, cautious: bool = False) -> None:
        self._ours = LearnedPairs(truth.kinds, truth.alone, WAYS)
        self._truth, self._guess, self._cautious = truth, guess, cautious
        self._measured: dict[Pair, tuple[float, float]] = {}

    def saw(self, first: int, second: int, way: int, rates: tuple[float, float]) -> bool:
        self._measured[first, second, way] = rates
        return self._ours.saw(first, second, way, rates)

    def together(self) -> Together:
        truth, pairing = self._truth, self._ours.pairing
        cells = truth.cells(list(self._measured))
        pairs = truth.pairs()
        wanted = [pairing(*pair) for pair in pairs.tolist()] + [pairing(b, a, way) for a, b, way in pairs.tolist()]
        found = self._guess(cells, wanted) * np.exp([of.log_alone for of in wanted])
        if self._cautious:
            found *= MARGIN * np.tile(self._ours.estimates.fits >= LEAST_FIT, 2)
        first, second = found[: len(pairs)], found[len(pairs) :]
        for number, pair in enumerate(map(tuple, pairs.tolist())):
            if pair in self._measured:
                first[number], second[number] = self._measured[pair]
        return _together([pairs, first, second], truth.alone)


def plans(truth: Truth, model: Model, part: float, seed: int, rounds: int) -> dict[str, list[float]]:
    """The results of the plans of each estimator, relative to a plan that knows all pairs (the first plan and later
    ones), with a random `part` of all pairs known. `model` gives the product's model for the known cells."""
    chance = np.random.default_rng(seed)
    kind = chance.integers(0, len(truth.kinds), JOBS)
    pairs = truth.pairs()
    sample = pairs[chance.permutation(len(pairs))[: round(part * len(pairs))]]
    known: list[Pair] = [(one, two, way) for one, two, way in sample.tolist()]
    best, _ = _reached(truth, kind, truth.everything())
    found = {"no space sharing": [_reached(truth, kind, None)[0] / best] * rounds}
    by: dict[str, LearnedPairs | Guesses] = {
        "ours": LearnedPairs(truth.kinds, truth.alone, WAYS, model(truth.cells(known))),
        "mean": Guesses(truth, mean_of_table),
        "Gavel": Guesses(truth, of_gavel),
        "cautious Gavel": Guesses(truth, of_gavel, cautious=True),
    }
    for name, estimates in by.items():
        for pair in known:
            estimates.saw(*pair, truth.rates(pair))
        found[name] = []
        for _ in range(rounds):
            value, used = _reached(truth, kind, estimates.together())
            found[name].append(value / best)
            for pair in used:
                estimates.saw(*pair, truth.rates(pair))
    return found


def _reached(truth: Truth, kind: np.ndarray, pairs: Together | None) -> tuple[float, list[Pair]]:
    """(the actual progress of the slowest job, the pairs in use) of the plan that counts on `pairs`."""
    supply = Supply(np.full(len(WAYS), GPUS_OF_EACH), np.ones(len(WAYS)))
    jobs = collection(truth.alone[kind], supply, kind=kind, together=pairs)
    program = max_min_fairness(jobs)
    plan, problem = solve(program), program.problem
    first = np.unique(problem.class_of, return_index=True)[1]
    rate, used = (plan.times * problem.rate).sum(axis=1), []
    if problem.pairs is not None:
        for number in np.flatnonzero(plan.together > 1e-9):
            a, b, way = problem.pairs.first[number], problem.pairs.second[number], problem.pairs.way[number]
            one, two = int(kind[first[a]]), int(kind[first[b]])
            rates = truth.rates((one, two, int(way)))
            rate[a] += plan.together[number] * rates[0]
            rate[b] += plan.together[number] * rates[1]
            used.append((min(one, two), max(one, two), int(way)))
    return float((rate / problem.count / units(jobs)[first]).min()), used


def simulated(truth: Truth, seed: int, estimates: Estimates) -> float:
    """Mean hours from arrival to end of random jobs that share a small cluster in rounds, under max-min fairness."""
    chance = np.random.default_rng(seed)
    kind = chance.integers(0, len(truth.kinds), SIMULATED_JOBS)
    at_s = np.sort(chance.uniform(0, 36_000, SIMULATED_JOBS))
    steps = truth.alone[kind, -1] * 3600 * 10 ** chance.uniform(-0.3, 0.7, SIMULATED_JOBS)
    jobs = Arrivals(at_s, truth.alone[kind], np.ones(SIMULATED_JOBS), steps)
    supply = Supply(np.full(len(WAYS), SIMULATED_GPUS), np.ones(len(WAYS)))
    outcome = SharedCluster(jobs, kind, truth.beside, supply, max_min_fairness, estimates).run()
    return float((outcome.ended_s - at_s).mean()) / 3600


def few(truth: Truth, seed: int) -> Truth:
    """The same with a random sample of kinds of jobs, as on a real cluster."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(truth.kinds))[:SIMULATED_KINDS])
    return truth.of(chosen)
