"""The accuracy of predicted rates beside another job: with random pairs left out, and with each family of models left
out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._colocated import Colocated
from benchmarks._colocation_baselines import half, mean_of_table, of_gavel, slowdown
from orchestrator.perf import FITTED_COLOCATION, ColocationModel, Floats, PairCell, Pairing
from orchestrator.perf.colocation import untaught
from orchestrator.perf.colocation_fit import calibrated_colocation, fit_colocation
from orchestrator.perf.pairings import Effects

METHODS = ("ours", "mean", "Gavel", "half")
QUICK_PART = 0.4


@dataclass(frozen=True, slots=True)
class Judged:
    """`error` (cells,) relative errors by method; `inside` (cells,): whether the product's 90 % interval contains the
    rate; `kind` (cells,): the GPU."""

    error: dict[str, Floats]
    inside: np.ndarray
    kind: np.ndarray

    @classmethod
    def all_of(cls, parts: Sequence[Judged]) -> Judged:
        error = {name: np.concatenate([part.error[name] for part in parts]) for name in METHODS}
        return cls(error, *(np.concatenate([getattr(part, name) for part in parts]) for name in ("inside", "kind")))


def model_of(cells: Sequence[PairCell], *, quick: bool) -> ColocationModel:
    """A model without a table, with effects and calibration fitted to these cells; with `quick`, the shipped ones;
    without cells, the prior ones."""
    if not cells and not quick:
        return untaught(Effects())
    fitted = FITTED_COLOCATION if quick else calibrated_colocation(fit_colocation(cells), cells)
    return replace(untaught(fitted.effects), families=fitted.families, calibration=fitted.calibration)


def random_pairs(table: Colocated, part: float, seed: int, *, quick: bool) -> Judged:
    """A random `part` of all pairs is known, with both rates."""
    known = sampled(table.cells, part, seed)
    rest = sorted(set(table.cells) - set(known), key=repr)
    return judged(model_of(known, quick=quick), known, rest)


def families_left_out(table: Colocated, parts: Sequence[float], *, quick: bool) -> list[Judged]:
    """For each of `parts`: each family in turn is new; this part of the pairs with its jobs is known, and all other
    pairs (with `quick`, 40 % of them)."""
    found: list[list[Judged]] = [[] for _ in parts]
    for family in sorted(set(table.family.values())):
        mine = [cell for cell in table.cells if family in (cell.of.family, cell.of.other_family)]
        others = sampled(sorted(set(table.cells) - set(mine), key=repr), QUICK_PART if quick else 1.0, 0)
        model = model_of(others, quick=quick)
        new = {job for job, of in table.family.items() if of == family}
        for part, judgements in zip(parts, found, strict=True):
            known = sampled(mine, part, 1)
            rest = sorted(set(mine) - set(known), key=repr)
            judgements.append(judged(model, [*others, *known], rest, new))
    return [Judged.all_of(judgements) for judgements in found]


def sampled(cells: Sequence[PairCell], part: float, seed: int) -> list[PairCell]:
    """The cells of a random part of the pairs; each pair on a kind gives the rates of both its jobs."""
    pairs = sorted({_pair(cell.of) for cell in cells})
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: round(part * len(pairs))]
    known = {pairs[index] for index in chosen}
    return [cell for cell in cells if _pair(cell.of) in known]


def _pair(of: Pairing) -> tuple[str, ...]:
    return (*sorted((of.job, of.other)), str(of.kind))


def judged(
    model: ColocationModel, known: Sequence[PairCell], rest: Sequence[PairCell], new: Collection[str] = ()
) -> Judged:
    wanted, true = [cell.of for cell in rest], np.array([slowdown(cell) for cell in rest])
    found = model.given(known).marginals(wanted)
    alone = np.array([of.log_alone for of in wanted])
    value = np.exp(np.minimum(found.mean - alone, 0))
    low, high = (np.exp(np.minimum(found.mean - alone + sign * found.spread, 0)) for sign in (-1, 1))
    guesses = {
        "ours": value,
        "mean": mean_of_table(known, wanted),
        "Gavel": of_gavel(known, wanted, new),
        "half": half(wanted),
    }
    error = {name: np.abs(guess / true - 1) for name, guess in guesses.items()}
    inside = (low <= true * (1 + 1e-9)) & (true <= high * (1 + 1e-9))
    return Judged(error, inside, np.array([str(of.kind[0]) for of in wanted]))
