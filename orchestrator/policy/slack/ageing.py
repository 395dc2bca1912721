"""Rates at which spells end at each age, learned from few spells.

The logarithms of the rates are jointly normal beforehand. A third of their variance is shared by all phases, because a
pool whose spells are short has short spells of every kind and age; a third by the phases of absences, or by those of
machines; and a third is each phase's own. So a few short spells say at once that the next ones will be short, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SPREAD = 1.0
"""The standard deviation of the logarithm of a rate before anything was seen: two thirds of the pools are within a
factor of e from the prior."""
_MOST_ROUNDS, _LARGEST_STEP, _SMALLEST_STEP = 50, 1.5, 0.02  # the error is about the square of the last step


class AgedRates:
    """The most likely rates of one pool, given how many spells ended in each phase, and the hours spent there."""

    def __init__(self, away_prior: Floats, there_prior: Floats) -> None:
        """The prior medians of the rates by phase, per hour."""
        self._away = len(away_prior)
        self._middle: Floats = np.log(np.concatenate([away_prior, there_prior]))
        kind = np.arange(len(self._middle)) < self._away
        shared = 1.0 + (kind[:, None] == kind) + np.eye(len(kind))
        self._precision = np.asarray(np.linalg.inv(SPREAD**2 / 3 * shared))
        self._found = self._middle

    def given(self, away: tuple[Floats, Floats], there: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """(rates at which an absence ends, rates at which a machine is lost), by phase, from (ends, hours) of each.

        Newton's method on a concave function, from where it ended the last time."""
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
