"""Spells whose rates are known from elsewhere. For pools of the live market, they come from the market's own
history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.policy.slack.spells import Floats, Spells


@dataclass(frozen=True, slots=True)
class PoolRates:
    """How often, per hour, missing capacity returns and a machine is lost.

    `there` says whether the pool had capacity when it was last looked at, `ago_h` hours ago (None: not known).
    """

    returns: float
    losses: float
    there: bool | None = None
    ago_h: float = 0.0


class KnownSpells(Spells):
    """Spells with two states for each pool and constant rates. The present is hour 0."""

    def __init__(self, pools: Sequence[PoolRates], tick_h: float) -> None:
        super().__init__(len(pools), tick_h)
        self._known = [(np.array([each.returns]), np.array([each.losses])) for each in pools]
        for pool, each in enumerate(pools):
            if each.there is not None:
                self._was_there[pool], self._seen_h[pool] = each.there, -each.ago_h
                self._state[pool] = np.array([float(not each.there), float(each.there)])

    def ends(self, pool: int) -> tuple[Floats, Floats]:
        """See Spells."""
        return self._known[pool]

    def state(self, pool: int, now_h: float) -> Floats:
        """See Spells."""
        if self._state[pool] is not None:
            return super().state(pool, now_h)
        returns, losses = self.constant(pool)
        return np.array([losses, returns]) / (returns + losses)

    def step(self, pool: int, hours: float) -> Floats:
        """See Spells."""
        ((returns,), (losses,)) = self._known[pool]
        total = float(returns + losses)
        changed = -math.expm1(-total * hours) / total
        return np.array([[1 - returns * changed, returns * changed], [losses * changed, 1 - losses * changed]])

    def constant(self, pool: int) -> tuple[float, float]:
        """See Spells."""
        ((returns,), (losses,)) = self._known[pool]
        return float(returns), float(losses)

    def survival(self, pool: int, hours: float) -> Floats:
        """See Spells."""
        lost = -math.expm1(-float(self._known[pool][1][0]) * hours)
        return np.array([[1 - lost, lost], [0.0, 1.0]])
