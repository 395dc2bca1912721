"""Which pools to probe, and how often: a probe must be cheap compared with the saving that knowing more could bring.

Probes are billed if there is capacity. Launches are tried for free, so a probe never decides where the job goes now. It
shows how long capacity stays and how soon it returns, and so how much slack the rest of the work needs.
"""

from __future__ import annotations

import math

from orchestrator.policy.slack.situation import Situation, Terms
from orchestrator.policy.slack.spells import Spells

WORTH = 0.15
"""The cost of probes may be this share of what knowing more could save."""
MOST, AHEAD = 0.01, 0.5
"""The share of the time for which probes may be billed at most, and the share of the work's time that counts as already
passed when the job begins."""


class Probes:
    """The probes of one job.

    Knowing all capacity in advance could save at most the expected cost to finish, less that of all the work on spot at
    today's lowest price. Probes may cost WORTH of that, in equal parts for each pool, spread over the time that the
    work takes. So capacity is hardly ever probed if spot is expected to be there all the time, and often if much would
    have to run on demand, or if the pool is probably empty, so that the probe is free.

    `expected_usd` is the expected cost to finish, as last found; as long as it is not known, only MOST counts.
    """

    def __init__(self, terms: Terms, spells: Spells, fastest: float) -> None:
        """`fastest` is the speed of the fastest on-demand machine."""
        self._terms, self._spells, self._fastest = terms, spells, fastest
        self._bought_usd = min(usd / speed for usd, speed in zip(terms.on_demand_usd, terms.speed, strict=True))
        self.expected_usd = math.inf
        self._billed_h = 0.0
        self._began: tuple[float, float] | None = None  # when, and the hours of work then

    def due(self, now: Situation) -> list[int]:
        """The pools to probe now, among those that cost less than on-demand. Pools whose last probe is the longest ago
        come first, up to MOST.

        A single pool is probed only while the job runs on demand, because capacity that has been there for a while
        justifies an earlier return than capacity that has just appeared. While nothing runs, trying a launch gives the
        same information at no cost.
        """
        terms, probe_h, alone = self._terms, self._terms.probe_h, self._spells.pools == 1
        here = now.running[0] if now.running is not None and now.running[1] else None
        if alone and (now.running is None or here is not None):
            return []
        if self._began is None:
            self._began = (now.now_h, now.work_h / self._fastest)
        left_h = MOST * (AHEAD * self._began[1] + now.now_h - self._began[0]) - self._billed_h
        if probe_h > left_h + 1e-9 * (left_h > 0):  # no machine is smaller than a size of 1
            return []
        looks = sorted(
            (-1.0 if (at_h := self._spells.last_look_h(pool)) is None else at_h, pool)
            for pool in range(self._spells.pools)
            if pool != here and now.spot_usd[pool] / terms.speed[pool] < self._bought_usd
        )
        worth_usd = self._worth_usd(now)
        found = []
        for at_h, pool in looks:
            cost_h = probe_h * self._size(pool)
            if at_h < now.now_h - 1e-9 and cost_h <= left_h + 1e-9 * (left_h > 0) and self._pays(pool, worth_usd, now):
                found.append(pool)
                left_h -= cost_h
        return found

    def billed(self, pool: int) -> None:
        """Records a probe that found capacity."""
        self._billed_h += self._terms.probe_h * self._size(pool)

    def _worth_usd(self, now: Situation) -> float:
        """What the probes of one pool may cost until the work is done."""
        spot = min(price / speed for price, speed in zip(now.spot_usd, self._terms.speed, strict=True))
        return WORTH * max(self.expected_usd - spot * now.work_h, 0.0) / self._spells.pools

    def _pays(self, pool: int, worth_usd: float, now: Situation) -> bool:
        """Whether probes of the pool, at intervals as long as the time since its last probe, are expected to cost no
        more than allowed. A pool that was never probed gets its first probe if a single one is worth its price."""
        at_h = self._spells.last_look_h(pool)
        part = 1.0
        if at_h is not None:
            part = min((now.now_h - at_h) * self._fastest / max(now.work_h, 1e-9), 1.0)
        there = float(self._spells.state(pool, now.now_h)[self._spells.away :].sum())
        return there * self._terms.probe_h * now.spot_usd[pool] <= worth_usd * part

    def _size(self, pool: int) -> float:
        """The size of a pool's machine: how many of the slowest machines do the same work, and cost about the same."""
        return self._terms.speed[pool] / min(self._terms.speed)
