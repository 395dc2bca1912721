"""Draft: writes a decision down as a Placement, with the offers that were looked at and the baseline.

Of a large market only the best offers and the nearest misses get a line, and their words are made only then: the rest
are counted. Must not know: how the decision was made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.market import Market
from orchestrator.model import Action, Alternative, Placement
from orchestrator.policy import explain
from orchestrator.policy.cost import Floats, Outlook
from orchestrator.policy.demand import Demand
from orchestrator.policy.eligible import NONE, Bar, Screened
from orchestrator.policy.objectives import Ranking, time_left_s

TOLD_WHOLE = 64  # a market of so many offers is told offer by offer
TOLD_BEST = 12
TOLD_MISSES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Everything known about one job at the moment of decision."""

    demand: Demand
    market: Market
    outlook: Outlook
    ranking: Ranking
    screened: Screened

    def placement(
        self,
        action: Action,
        chosen: int | None,
        reason: str,
        *,
        held: str = "",
        threshold: int | None = None,
        kept_up_to: int | None = None,
    ) -> Placement:
        """The placement for row `chosen`. The saving of a move is against staying, any other's against the baseline.

        `held` says why no voluntary move may be made now; `threshold` is the price below which one would be, and
        `kept_up_to` the price of the chosen one up to which it is chosen.
        """
        outlook, market, current = self.outlook, self.market, self.screened.current
        cost = finish = None
        if chosen is not None and outlook.known:
            at = outlook.pool.at(chosen)
            finish = market.at + round(float(outlook.mid.seconds[at]) * 1000)
            if market.priced[chosen]:
                cost = round(float(outlook.mid.cost[at]))
        baseline = self._baseline()
        instead = None if baseline is None else baseline.cost_nano_usd
        if action == "move" and current is not None:
            instead = round(float(outlook.mid.cost[outlook.pool.at(current)]))
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
            kept_up_to_nano_usd_per_hour=kept_up_to,
            parts=None if chosen is None or cost is None else outlook.parts(chosen),
            expected_losses=None if chosen is None else float(outlook.mid.losses[outlook.pool.at(chosen)]),
            hazard_source="" if chosen is None else market.hazard_provenance(chosen),
            considered=len(market),
            rejected=explain.rejections(self.ranking),
        )

    def _baseline(self) -> Alternative | None:
        """The cheapest on-demand offer that meets the constraints: what one would pay without us.

        The kinds of capacity that the job allows, back-off and budget don't count; the deadline does if it can be met.
        """
        outlook, meets = self.outlook, self.screened.instead
        if not meets.any():
            return None
        left_s = time_left_s(self.demand, self.market)
        if left_s is not None:
            in_time = meets & (outlook.afresh(outlook.high)[0] <= left_s)
            meets = in_time if in_time.any() else meets
        positions = np.flatnonzero(meets)
        _, cost = outlook.afresh(outlook.mid)
        best = int(outlook.pool.rows[positions[np.argmin(cost[positions])]])
        return _views(outlook.over([best]), self.screened, [(best, "", True)], fresh=True)[0]

    def _alternatives(self, chosen: int | None, held: str) -> tuple[Alternative, ...]:
        """The chosen one, then candidates in order, then the barred, nearest miss first."""
        ranking = self.ranking
        whole = len(self.market) <= TOLD_WHOLE
        order = ranking.order.tolist()
        told = order if whole or not order else _best(order, self.market)
        barred = [row for row in _misses(ranking, None if whole else TOLD_MISSES) if row != chosen]
        current = self.screened.current
        needed = [row for row in (chosen, current) if row is not None]
        outlook = self.outlook.over([*told, *barred, *needed])
        rows = [] if chosen is None else [(chosen, "", bool(ranking.bars[chosen] == NONE))]
        ahead = chosen in order
        for row in told:
            if row == chosen:
                ahead = False
            else:
                rows.append((row, self._why_not(outlook, row, chosen, ahead, held), True))
        for row in barred:
            rows.append((row, explain.why_barred(self.demand, self.market, outlook, ranking, row), False))
        return _views(outlook, self.screened, rows)

    def _why_not(self, outlook: Outlook, row: int, chosen: int | None, ahead: bool, held: str) -> str:
        if chosen is None:
            return "the job is not to be placed now"
        current = self.screened.current
        if ahead and current is not None and self.ranking.mode == "safe":
            return explain.why_not_moved(self.demand, outlook, row, current, held)
        return explain.why_not(self.demand, outlook, self.ranking, row, chosen)


def _best(order: list[int], market: Market) -> list[int]:
    """The head of an order, and the best at another site than the best of all, where a spare would stand."""
    head = order[:TOLD_BEST]
    site = market.listing.site
    if all(site[row] == site[order[0]] for row in head):
        head += [row for row in order[TOLD_BEST:] if site[row] != site[order[0]]][:1]
    return head


def _misses(ranking: Ranking, limit: int | None) -> list[int]:
    """Barred rows, those that came furthest in the examination first; at most `limit`."""
    bars = ranking.bars
    if limit is None:
        barred = np.flatnonzero(bars != NONE)
        return barred[np.argsort(-bars[barred], kind="stable")].tolist()
    rows: list[int] = []
    for bar in sorted(Bar, reverse=True):
        if len(rows) < limit:
            rows += np.flatnonzero(bars == bar)[: limit - len(rows)].tolist()
    return rows


def _views(
    outlook: Outlook, screened: Screened, rows: list[tuple[int, str, bool]], *, fresh: bool = False
) -> tuple[Alternative, ...]:
    """Rows (with reason and feasibility) as values; whole columns are converted at once, which is much faster."""
    market, pool, known = outlook.pool.market, outlook.pool, outlook.known
    cases = [outlook.low, outlook.mid, outlook.high]
    figures = [outlook.afresh(case) if fresh else (case.seconds, case.cost) for case in cases]
    low, mid, high = (_listed(cost) for _, cost in figures)
    duration = _listed(figures[1][0])
    bars = screened.bars[pool.rows]
    fits = ((bars == NONE) | (bars > Bar.MEMORY)).tolist()
    price, age = market.price[pool.rows].tolist(), market.ages_s(pool.rows).tolist()
    rate, per_step = _listed(outlook.rate), _listed(outlook.per_step)
    views = []
    for row, reason, feasible in rows:
        at = pool.at(row)
        costs = fits[at] and price[at] >= 0
        views.append(
            Alternative(
                offer_id=market.ids[row],
                nano_usd_per_hour=max(price[at], 0),
                price_age_s=age[at],
                steps_per_s=rate[at] if fits[at] else None,
                nano_usd_per_step=per_step[at] if costs else None,
                cost_nano_usd=round(mid[at]) if costs and known else None,
                cost_low_nano_usd=round(low[at]) if costs and known else None,
                cost_high_nano_usd=round(high[at]) if costs and known else None,
                duration_s=duration[at] if fits[at] and known else None,
                feasible=feasible,
                reason=reason,
            )
        )
    return tuple(views)


def _listed(column: Floats) -> list[float]:
    return column.tolist()  # type: ignore[no-any-return]
