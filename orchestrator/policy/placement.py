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
from orchestrator.policy.eligible import NONE, Bar, Screened, only
from orchestrator.policy.objectives import Ranking, time_left_s

TOLD_WHOLE = 64  # a market of so many offers is told offer by offer
TOLD_BEST = 6
TOLD_MISSES = 3
_MEMORY = np.int8(Bar.MEMORY)  # up to here an offer cannot run the job at all: what it would cost says nothing

_NEAREST_FIRST = sorted(Bar, reverse=True)
_Told = tuple[int, str, bool]  # row, reason, feasible


@dataclass(frozen=True, eq=False)
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
        ranking, market, current = self.ranking, self.market, self.screened.current
        whole = len(market) <= TOLD_WHOLE
        order = ranking.order.tolist()
        best = order if whole or not order else _best(order, market)
        misses = [row for row in self._misses(None if whole else TOLD_MISSES) if row != chosen]
        instead = self._instead()
        misfits = [row for row in misses if ranking.bars[row] <= _MEMORY]
        unknown = [row for row in misfits if row not in self.screened.told]
        misses = misses[: len(misses) - len(misfits)]  # they come first
        needed = [row for row in (chosen, current, instead) if row is not None]
        shown = self.outlook.over([*best, *misses, *unknown, *needed])

        told: list[_Told] = [] if chosen is None else [(chosen, "", bool(ranking.bars[chosen] == NONE))]
        told += self._passed_over(shown, best, chosen, held)
        told += [(row, explain.why_barred(self.demand, market, shown, ranking, row), False) for row in misses]
        if unknown:
            why = [(row, explain.why_barred(self.demand, market, shown, ranking, row), False) for row in unknown]
            self.screened.told.update(zip(unknown, _views(shown, self.screened, why), strict=True))
        alternatives = (*_views(shown, self.screened, told), *(self.screened.told[row] for row in misfits))
        baseline = None if instead is None else _views(shown, self.screened, [(instead, "", True)], fresh=True)[0]

        cost = finish = losses = parts = None
        saving = 0
        if chosen is not None:
            at = shown.pool.at(chosen)
            losses = float(shown.mid.losses[shown.pool.cell[at]])
            if shown.known:
                finish = market.at + round(float(shown.mid.seconds[at]) * 1000)
                if market.priced[chosen]:
                    cost, parts = round(float(shown.mid.cost[at])), shown.parts(chosen)
                    otherwise = None if baseline is None else baseline.cost_nano_usd
                    if action == "move" and current is not None:
                        otherwise = round(float(shown.mid.cost[shown.pool.at(current)]))
                    saving = 0 if otherwise is None else otherwise - cost
        return Placement(
            job_id=self.demand.job.id,
            action=action,
            offer_id=None if chosen is None else market.ids[chosen],
            reason=reason,
            cost_nano_usd=cost,
            finish_at_ms=finish,
            saving_nano_usd=saving,
            alternatives=alternatives,
            baseline=baseline,
            throughput=None if chosen is None else shown.throughput(chosen),
            would_move_below_nano_usd_per_hour=threshold,
            kept_up_to_nano_usd_per_hour=kept_up_to,
            parts=parts,
            expected_losses=losses,
            hazard_source="" if chosen is None else market.hazard_provenance(chosen),
            considered=len(market),
            rejected=explain.rejections(ranking),
        )

    def _misses(self, limit: int | None) -> list[int]:
        """Barred rows, nearest first; found once for all jobs of a demand when no promise bars any."""
        if self.ranking.bars is not self.screened.bars:
            return _misses(self.ranking, limit)
        known = self.screened.misses
        if limit not in known:
            known[limit] = _misses(self.ranking, limit)
        return known[limit]

    def _instead(self) -> int | None:
        """The cheapest on-demand offer that meets the constraints: what one would pay without us.

        The kinds of capacity that the job allows, back-off and budget don't count; the deadline does if it can be met.
        """
        outlook, meets = self.outlook, self.screened.instead
        left_s = time_left_s(self.demand, self.market)
        if left_s is not None:
            in_time = meets & (outlook.afresh(outlook.high)[0] <= left_s)
            meets = in_time if in_time.any() else meets
        positions = np.flatnonzero(meets)
        if not positions.size:
            return None
        _, cost = outlook.afresh(outlook.mid)
        return int(outlook.pool.rows[positions[np.argmin(cost[positions])]])

    def _passed_over(self, shown: Outlook, best: list[int], chosen: int | None, held: str) -> list[_Told]:
        """Why the candidates were not taken, in order."""
        if chosen is None:
            return [(row, "the job is not to be placed now", True) for row in best]
        current, mode, objective = self.screened.current, self.ranking.mode, self.demand.job.spec.objective
        gated = current is not None and mode == "safe" and chosen in best
        seconds, cost = _listed(shown.mid.seconds), _listed(shown.mid.cost)

        def figures(row: int) -> explain.Figures:
            at = shown.pool.at(row)
            return explain.Figures(seconds[at], cost[at], self.ranking.odds(row) if mode == "likely" else 0.0)

        told: list[_Told] = []
        it = figures(chosen) if mode in ("safe", "late", "likely") else None
        for row in best:
            if row == chosen:
                gated = False
            elif gated and current is not None:
                told.append((row, explain.why_not_moved(self.demand, shown, row, current, held), True))
            elif it is not None:
                told.append((row, explain.why_not(objective, mode, figures(row), it, known=shown.known), True))
        return told


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
    for bar in _NEAREST_FIRST:
        if len(rows) < limit and ranking.counts[bar]:
            rows += np.flatnonzero(only(bars, bar))[: limit - len(rows)].tolist()
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
    fits = ((bars == NONE) | (bars > _MEMORY)).tolist()
    price, age = market.price[pool.rows].tolist(), market.price_age_s(pool.rows).tolist()
    rate, per_step = _listed(outlook.over_rows(outlook.rate)), _listed(outlook.per_step)
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
