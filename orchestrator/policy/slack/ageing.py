"""Learns the rates at which spells (periods with or without capacity) end at each age, from few spells.

The logarithms of the rates have a joint normal prior. A third of their variance is shared by all phases, because a pool
whose spells are short has short spells of every kind and age. A third is shared by the phases of absences, or by those
of machines. The last third is each phase's own. So a few short spells suffice to predict that the next ones will be
short, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SPREAD = 1.0
"""The standard deviation of the logarithm of a rate before any observation: two thirds of the pools are within a factor
of e from the prior."""
_MOST_ROUNDS, _LARGEST_STEP, _SMALLEST_STEP = 50, 1.5, 0.02  # the error is about the square of the last step


class AgedRates:
    """Finds the most likely rates of one pool, given how many spells ended in each phase, and the hours spent there."""

    def __init__(self, away_prior: Floats, there_prior: Floats) -> None:
        """The arguments are the prior medians of the rates (per hour), by phase."""
        self._away = len(away_prior)
        self._middle: Floats = np.log(np.concatenate([away_prior, there_prior]))
        kind = np.arange(len(self._middle)) < self._away
        shared = 1.0 + (kind[:, None] == kind) + np.eye(len(kind))
        self._precision = np.asarray(np.linalg.inv(SPREAD**2 / 3 * shared))
        self._found = self._middle

    def given(self, away: tuple[Floats, Floats], there: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """(rates at which an absence ends, rates at which a machine is lost), by phase.

        Each argument is (number of spells that ended, hours spent), by phase. Uses Newton's method on a concave
        function, starting from the last result.
        """
        ends, spent = (np.concatenate(pair) for pair in zip(away, there, strict=True))
        found = self._found
        for _ in range(_MOST_ROUNDS):
            expected = spent * np.exp(found)
            slope = ends - expected - self._precision @ (found - self._middle)
            step = np.linalg.solve(self._precision + np.diag(expected), slope).clip(-_LARGEST_STEP, _LARGEST_STEP)
            found = found + step
            if np.abs(step).max() < _SMALLEST_STEP:
                break
        self._found = found
        rates = np.exp(found)
        return rates[: self._away], rates[self._away :]
