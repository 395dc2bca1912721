"""Draft: writes a decision down as a Placement, with every offer that was looked at and the baseline.

Must not know: how the decision was made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.market import Market
from orchestrator.model import Action, Alternative, Placement
from orchestrator.policy import explain
from orchestrator.policy.cost import Band, Outlook
from orchestrator.policy.demand import Demand
from orchestrator.policy.eligible import NONE, Bar, Bars
from orchestrator.policy.objectives import Ranking, time_left_s


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Everything known about one job at the moment of decision. `current` is the row where it could stay."""

    demand: Demand
    market: Market
    outlook: Outlook
    ranking: Ranking
    current: int | None
    screened: Bars

    def placement(
        self, action: Action, chosen: int | None, reason: str, *, held: str = "", threshold: int | None = None
    ) -> Placement:
        """The placement for row `chosen`. The saving of a move is against staying, any other's against the baseline.

        `held` says why no voluntary move may be made now; `threshold` is the price below which one would be.
        """
        outlook, market = self.outlook, self.market
        cost = finish = None
        if chosen is not None and outlook.known:
            finish = market.at + round(float(outlook.seconds.mid[chosen]) * 1000)
            if market.priced[chosen]:
                cost = round(float(outlook.cost.mid[chosen]))
        baseline = self._baseline()
        instead = None if baseline is None else baseline.cost_nano_usd
        if action == "move" and self.current is not None:
            instead = round(float(outlook.cost.mid[self.current]))
        return Placement(
            job_id=self.demand.job.id,
            action=action,
            offer_id=None if chosen is None else market.ids[chosen],
            reason=reason,
            cost_nano_usd=cost,
            finish_at_ms=finish,
            saving_nano_usd=0 if cost is None or instead is None else instead - cost,
            alternatives=self._alternatives(chosen, held),
            baseline=baseline,
            throughput=None if chosen is None else outlook.throughput(chosen),
            would_move_below_nano_usd_per_hour=threshold,
        )

    def _baseline(self) -> Alternative | None:
        """The cheapest on-demand offer that meets the constraints: what one would pay without us.

        The kinds of capacity that the job allows, back-off and budget don't count; the deadline does if it can be met.
        """
        market, outlook = self.market, self.outlook
        meets = np.isin(self.screened, (NONE, Bar.CAPACITY_TYPE, Bar.NO_CAPACITY, Bar.STALE_PRICE))
        meets &= ~market.spot & market.priced
        left_s = time_left_s(self.demand, market)
        if left_s is not None and (meets & (outlook.fresh_s.high <= left_s)).any():
            meets &= outlook.fresh_s.high <= left_s
        rows = np.flatnonzero(meets)
        if not rows.size:
            return None
        best = int(rows[np.argmin(outlook.fresh_cost.mid[rows])])
        return self._views([(best, "", True)], outlook.fresh_s, outlook.fresh_cost)[0]

    def _alternatives(self, chosen: int | None, held: str) -> tuple[Alternative, ...]:
        """Every offer: the chosen one, then candidates in order, then the barred, nearest miss first."""
        ranking, outlook = self.ranking, self.outlook
        order = ranking.order.tolist()
        rows = [] if chosen is None else [(chosen, "", bool(ranking.bars[chosen] == NONE))]
        ahead = chosen in order
        for row in order:
            if row == chosen:
                ahead = False
            else:
                rows.append((row, self._why_not(row, chosen, ahead, held), True))
        barred = np.flatnonzero(ranking.bars != NONE)
        barred = barred[np.argsort(-ranking.bars[barred], kind="stable")]
        for row in barred.tolist():
            if row != chosen:
                rows.append((row, explain.why_barred(self.demand, self.market, outlook, ranking, row), False))
        return self._views(rows, outlook.seconds, outlook.cost)

    def _why_not(self, row: int, chosen: int | None, ahead: bool, held: str) -> str:
        if chosen is None:
            return "the job is not to be placed now"
        if ahead and self.current is not None and self.ranking.mode == "safe":
            return explain.why_not_moved(self.demand, self.outlook, row, self.current, held)
        return explain.why_not(self.demand, self.outlook, self.ranking, row, chosen)

    def _views(self, rows: list[tuple[int, str, bool]], seconds: Band, cost: Band) -> tuple[Alternative, ...]:
        """Rows (with reason and feasibility) as values; whole columns are converted at once, which is much faster."""
        outlook, market, known = self.outlook, self.market, self.outlook.known
        fits = ((self.screened == NONE) | (self.screened > Bar.MEMORY)).tolist()
        price, age = market.price.tolist(), market.price_age_s.tolist()
        rate, per_step, duration = outlook.rate.tolist(), outlook.per_step.tolist(), seconds.mid.tolist()
        low, mid, high = cost.low.tolist(), cost.mid.tolist(), cost.high.tolist()
        views = []
        for row, reason, feasible in rows:
            costs = fits[row] and price[row] >= 0
            views.append(
                Alternative(
                    offer_id=market.ids[row],
                    nano_usd_per_hour=max(price[row], 0),
                    price_age_s=age[row],
                    steps_per_s=rate[row] if fits[row] else None,
                    nano_usd_per_step=per_step[row] if costs else None,
                    cost_nano_usd=round(mid[row]) if costs and known else None,
                    cost_low_nano_usd=round(low[row]) if costs and known else None,
                    cost_high_nano_usd=round(high[row]) if costs and known else None,
                    duration_s=duration[row] if fits[row] and known else None,
                    feasible=feasible,
                    reason=reason,
                )
            )
        return tuple(views)
