"""A policy's knowledge of pairs of kinds of jobs in the arena: predictions that are updated as pairs run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.perf import (
    FITTED_COLOCATION,
    ColocationModel,
    Fitted,
    InstanceKind,
    MemoryTogether,
    PairCell,
    Pairing,
)
from orchestrator.policy.groups import Together
from orchestrator.policy.groups.companions import PairEstimates, counted_on
from orchestrator.policy.groups.problem import Floats, Integers

_NOBODY, _NO_RATE = np.zeros(0, dtype=np.int64), np.zeros(0)
NO_PAIRS = Together(_NOBODY, _NOBODY, _NOBODY, _NO_RATE, _NO_RATE)
_LEAST_FIT_TRIED = 0.5  # a try that does not fit costs one job a round of waiting


@dataclass(frozen=True, slots=True)
class FixedPairs:
    """Estimates that are never updated: for example the truth, or that no pair helps (NO_PAIRS)."""

    pairs: Together = NO_PAIRS

    def together(self) -> Together:
        """The pairs to count on."""
        return self.pairs

    def promising(self, *_: int) -> bool:
        """No pair is worth a try."""
        return False

    def saw(self, *_: object) -> bool:
        """Never updated."""
        return False


class LearnedPairs:
    """Estimates of all pairs of `kinds`, each (name, family of models), whose rates `alone` (kinds, ways) are known."""

    def __init__(
        self,
        kinds: Sequence[tuple[str, str]],
        alone: Floats,
        ways: Sequence[InstanceKind],
        model: ColocationModel = FITTED_COLOCATION,
    ) -> None:
        """Estimates without any measured pair."""
        self.kinds, self.alone, self.ways, self.model = kinds, alone, ways, model
        self._measured: dict[tuple[int, int, int], tuple[float, float]] = {}
        count = range(len(kinds))
        able = [
            (one, two, way)
            for way in range(len(ways))
            for one in count
            for two in count
            if one <= two and alone[one, way] > 0 and alone[two, way] > 0
        ]
        self._pairs: Integers = np.array(able, dtype=np.int64).reshape(len(able), 3)
        self._number = {pair: number for number, pair in enumerate(able)}

    def saw(self, first: int, second: int, way: int, rates: tuple[float, float]) -> bool:
        """A pair ran with these steps/s; both 0: its memory did not fit. Returns whether the estimates changed.

        Raises ValueError for other rates that are not positive and finite, and for a kind that cannot run there alone.
        """
        if first > second:
            first, second, rates = second, first, rates[::-1]
        key = (first, second, way)
        if rates != (0, 0) and not all(0 < rate < math.inf for rate in rates):
            raise ValueError(f"the rates of a pair must be positive and finite, or both 0, not {rates}")
        if key not in self._number:
            raise ValueError(f"kinds {first} and {second} cannot both run in way {way}")
        if self._measured.get(key) == rates:
            return False
        self._measured[key] = rates
        self.__dict__.pop("_found", None)
        return True

    def together(self) -> Together:
        """The pairs to count on."""
        return counted_on(self.estimates)

    @property
    def estimates(self) -> PairEstimates:
        """All pairs."""
        return self._found[0]

    def promising(self, first: int, second: int, way: int) -> bool:
        """Whether a pair that was never measured probably gains and fits."""
        pair = (min(first, second), max(first, second), way)
        number = self._number.get(pair)
        if number is None or pair in self._measured:
            return False
        return bool(self._found[1][number] > 1) and self.estimates.fits[number] >= _LEAST_FIT_TRIED

    def pairing(self, first: int, second: int, way: int) -> Pairing:
        """A kind beside another one in a way."""
        logs = math.log(self.alone[first, way]), math.log(self.alone[second, way])
        return Pairing(*self.kinds[first], *self.kinds[second], self.ways[way], *logs)

    @cached_property
    def _found(self) -> tuple[PairEstimates, Floats]:
        """All pairs, and the sums (pairs,) of their median relative rates."""
        one, two, way = self._pairs.T
        both = [self.pairing(*pair) for pair in self._pairs.tolist()]
        turned = [self.pairing(second, first, at) for first, second, at in self._pairs.tolist()]
        cells, fitted = [], []
        for (first, second, at), rates in sorted(self._measured.items()):
            fitted.append(Fitted(*self.kinds[first], *self.kinds[second], self.ways[at], rates[0] > 0))
            if rates[0] > 0:
                cells.append(PairCell(self.pairing(first, second, at), math.log(rates[0])))
                if first != second:
                    cells.append(PairCell(self.pairing(second, first, at), math.log(rates[1])))
        found = self.model.given(cells).marginals([*both, *turned])
        alone = np.array([each.log_alone for each in (*both, *turned)])
        median = np.exp(np.minimum(found.mean - alone, 0.0))
        low = np.exp(np.minimum(found.mean - alone - found.spread, 0.0) + alone)
        memory, n = MemoryTogether(fitted, {}), len(both)
        fits = np.array(
            [memory.probability(self.kinds[a], self.kinds[b], self.ways[at]) for a, b, at in self._pairs.tolist()]
        )
        alone = np.exp(alone)
        return PairEstimates(one, two, way, low[:n], low[n:], alone[:n], alone[n:], fits), median[:n] + median[n:]
