"""PlacementBuilder: turns a decision into a Placement, with the offers considered and the baseline.

It lists the best offers and those closest to a fit, with their reasons, and counts the others. A caller that shows the
plan to a person may request every offer of a small market. This does not change the figures of the placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from orchestrator.market import Market
from orchestrator.model import Action, Alternative, Placement, Probe
from orchestrator.policy import gate
from orchestrator.policy.demand import Demand
from orchestrator.policy.equivalent_offers import alike, close
from orchestrator.policy.explanation import explain
from orchestrator.policy.explanation.expected import believable
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import (
    LAST_MISFIT,
    NONE,
    SMALL,
    Filtered,
    RejectionReason,
    fits,
    only,
)
from orchestrator.policy.ranking.limits import latest_start_s, time_left_s
from orchestrator.policy.ranking.order import Mode, Ranking
from orchestrator.policy.ranking.outlook import Outlook, Shown
from orchestrator.policy.ranking.patience import Wait
from orchestrator.policy.ranking.pool import Floats, Rows

LIST_BEST = 6
LIST_MISSES = 3

_NEAREST_FIRST = sorted(RejectionReason, reverse=True)
_Listed = tuple[int, str, bool]  # row, reason, feasible


@dataclass(frozen=True, eq=False)
class PlacementBuilder:
    """Everything known about one job when the decision is made. With `complete`, all offers of a small market are
    listed."""

    demand: Demand
    market: Market
    forecast: Forecast
    ranking: Ranking
    filtered: Filtered
    complete: bool

    def placement(
        self,
        action: Action,
        chosen: int | None,
        reason: str,
        *,
        held: str = "",
        why_barred: Callable[[int], str] = lambda _: "",
        threshold: int | None = None,
        kept_up_to: int | None = None,
        probe: Probe | None = None,
        again_at_ms: int | None = None,
        awaited: Wait | None = None,
    ) -> Placement:
        """The placement on row `chosen`. The saving of a move is relative to staying; any other saving is relative to
        the baseline.

        `held` says why no voluntary move may be made now, and `why_barred` names the limit that prevents a move to a
        better row, if any. `threshold` is the price below which the job would move, and `kept_up_to` the price of the
        chosen offer up to which it stays the choice (both nano-USD per hour). If `probe` names the chosen offer, the
        saving is that of the probe. `again_at_ms` is when to decide again, such as at the end of a probe; if a back-off
        ends sooner, that time applies. `awaited` is the wait with which the other offers are compared.
        """
        ranking, market, current = self.ranking, self.market, self.filtered.current
        whole = len(market) <= SMALL and self.complete
        order = ranking.order.tolist()
        best = order if whole or not order else _best(order, market)
        misses = [row for row in self._misses(None if whole else LIST_MISSES) if row != chosen]
        instead = ranking.instead
        misfits = [row for row in misses if ranking.rejection_reasons[row] <= LAST_MISFIT]
        misses = misses[: len(misses) - len(misfits)]  # misfits are at the end of the list
        needed = [row for row in (chosen, current, instead) if row is not None]
        starts = action == "place" or (
            action == "move" and current is None
        )  # "move" without a current row: the move has begun
        safe = starts and chosen is not None and ranking.rejection_reasons[chosen] == NONE
        near = alike(market, order, chosen) if safe and chosen is not None and self._chance(chosen) is None else []
        listed_rows = [*best, *misses, *needed, *near]
        rivals = np.array(listed_rows, np.int64) if self.filtered.fitting is None else self.filtered.fitting
        course = [] if chosen is None else [chosen, *order[:1], *self.filtered.awaited.tolist()]
        shown = self.forecast.over((*listed_rows, *rivals.tolist(), *course, *ranking.outlook.others))

        reported: list[_Listed] = (
            [] if chosen is None else [(chosen, "", bool(ranking.rejection_reasons[chosen] == NONE))]
        )
        trying = probe is not None and chosen is not None and probe.offer_id == market.ids[chosen]
        reported += self._not_chosen(shown, order, best, chosen, held, why_barred, awaited, trying=trying)
        sheet = _Sheet(shown, self.filtered, rivals, ranking.outlook, course)
        reported += [
            (row, explain.why_rejected(self.demand, market, shown, ranking, row, sheet.shown), False) for row in misses
        ]
        alternatives = (*(sheet.view(*each) for each in reported), *self._misfits(misfits))
        also = tuple(market.ids[row] for row in near if close(sheet.view(row, "", True), alternatives[0]))
        baseline = None if instead is None else sheet.afresh(instead)
        if baseline is not None and instead is not None and action == "wait":
            baseline = replace(baseline, reason=self._why_not_bought(shown, instead, awaited, sheet.shown))

        cost = finish = losses = parts = None
        saving = 0
        if chosen is not None:
            at = shown.pool.at(chosen)
            if shown.known:
                losses = float(shown.mid.losses[shown.pool.cell[at]])
                finish = market.at + round(sheet.seconds[1][at] * 1000)
                if market.priced[chosen]:
                    cost = round(sheet.costs[1][at])
                    parts = shown.parts(chosen, later=cost - round(float(shown.mid.cost[at])))
                    if action == "move" and current is not None:
                        saving = gate.promised_saving(shown, ranking, current, chosen)
                    elif baseline is not None and baseline.cost_nano_usd is not None:
                        saving = baseline.cost_nano_usd - cost
        if trying and probe is not None:
            saving = probe.saving_nano_usd
        capacity_again_ms = None if action == "none" else self.filtered.capacity_again_ms
        return Placement(
            job_id=self.demand.job.id,
            action=action,
            offer_id=None if chosen is None else market.ids[chosen],
            reason=reason,
            cost_nano_usd=cost,
            finish_at_ms=finish,
            saving_nano_usd=believable(saving),
            alternatives=alternatives,
            baseline=baseline,
            throughput=None if chosen is None or not shown.speed_known else shown.throughput(chosen),
            would_move_below_nano_usd_per_hour=threshold,
            kept_up_to_nano_usd_per_hour=kept_up_to,
            parts=parts,
            expected_losses=losses,
            hazard_source="" if chosen is None else market.hazard_provenance(chosen),
            considered=len(market),
            rejected=explain.rejections(ranking),
            probe=probe,
            again_at_ms=min((at for at in (again_at_ms, capacity_again_ms) if at is not None), default=None),
            chance=None if chosen is None else self._chance(chosen),
            evidence=self.forecast.evidence,
            also=also,
        )

    def waiting(self, awaited: Wait) -> Placement:
        """The placement of a job that waits for capacity. Its cost, finish and saving are those of waiting."""
        shown = self.forecast.over([awaited.row, *self.ranking.outlook.others])
        waits_s = {awaited.row: awaited.seconds}
        sheet = _Sheet(shown, self.filtered, np.array([], np.int64), self.ranking.outlook, wait_s=waits_s)
        view = sheet.view(awaited.row, "", True)
        # A job waits only if cost and time are known.
        assert view.duration_s is not None
        assert view.cost_nano_usd is not None
        reason = explain.why_patient(self.demand, self.market, self.forecast, awaited)
        wait = self.placement("wait", None, reason, awaited=replace(awaited, cost_nano_usd=view.cost_nano_usd))
        latest_s = None if awaited.late else latest_start_s(self.demand, self.forecast, self.filtered)
        last_ms = None if latest_s is None else self.market.at + max(round(latest_s * 1000), 0)
        left_s = time_left_s(self.demand, self.forecast)
        in_time = left_s is None or view.duration_s <= left_s
        looks = [at for at in (wait.again_at_ms, last_ms) if at is not None]
        return replace(
            wait,
            cost_nano_usd=view.cost_nano_usd,
            finish_at_ms=self.market.at + round(view.duration_s * 1000),
            saving_nano_usd=believable(awaited.saving_nano_usd),
            again_at_ms=None if not looks else min(looks),
            chance=0.0 if awaited.late and not in_time else None,
            awaited=view,
        )

    def _chance(self, chosen: int) -> float | None:
        if self.ranking.mode == "late":
            return 0.0
        likely = self.ranking.mode == "likely" and chosen in self.ranking.order
        return self.ranking.odds(chosen) if likely else None

    def _misses(self, limit: int | None) -> list[int]:
        """Rejected rows, closest to a fit first. Jobs with equal requirements share this list, unless the deadline or
        budget rejects a row."""
        if self.ranking.rejection_reasons is not self.filtered.rejection_reasons:
            return _misses(self.ranking, limit)
        known = self.filtered.misses
        if limit not in known:
            known[limit] = _misses(self.ranking, limit)
        return known[limit]

    def _misfits(self, rows: list[int]) -> list[Alternative]:
        """Alternatives for rows that cannot run the job, without costs. Jobs with equal requirements share them."""
        market, known = self.market, self.filtered.reported
        fresh = [row for row in rows if row not in known]
        ages_s = market.price_age_s(np.array(fresh)).tolist() if fresh else ()
        for row, age_s in zip(fresh, ages_s, strict=True):
            known[row] = Alternative(
                offer_id=market.ids[row],
                nano_usd_per_hour=max(market.price.item(row), 0),
                price_age_s=age_s,
                steps_per_s=None,
                nano_usd_per_step=None,
                cost_nano_usd=None,
                cost_low_nano_usd=None,
                cost_high_nano_usd=None,
                duration_s=None,
                feasible=False,
                reason=explain.why_rejected(self.demand, market, self.forecast, self.ranking, row),
            )
        return [known[row] for row in rows]

    def _not_chosen(
        self,
        shown: Forecast,
        order: list[int],
        best: list[int],
        chosen: int | None,
        held: str,
        why_barred: Callable[[int], str],
        awaited: Wait | None,
        *,
        trying: bool,
    ) -> list[_Listed]:
        """The other candidates of `best`, in order, with the reasons why they were not chosen."""
        if awaited is not None:
            return [(row, self._why_not_now(shown, row, awaited), True) for row in best]
        if chosen is None:
            return [(row, "the job is not being placed now", True) for row in best]
        if trying:
            return [(row, "to be decided after the probe", True) for row in best if row != chosen]
        current, mode, objective = self.filtered.current, self.ranking.mode, self.demand.job.spec.objective
        ahead = set(order[: order.index(chosen)]) if current is not None and chosen in order else set()
        rise = _listed(shown.mid.price_s / np.maximum(shown.pool.price_s, 1e-9) - 1)

        def figures(row: int) -> explain.Figures:
            cost, seconds = self.ranking.outlook.of(row)
            chance = self.ranking.odds(row) if mode == "likely" else 0.0
            measures = mode == "likely" and self.ranking.measured_first(row)
            return explain.Figures(seconds, cost, chance, rise[shown.pool.at(row)], measures)

        reported: list[_Listed] = []
        it = figures(chosen) if mode in ("safe", "late", "likely") else None
        for row in best:
            if row in ahead and (why := why_barred(row)):
                reported.append((row, why, True))
            elif row in ahead and current is not None and mode == "safe":
                reported.append(
                    (row, explain.why_not_moved(self.demand, shown, self.ranking, row, current, held), True)
                )
            elif row != chosen and it is not None:
                reported.append((row, explain.why_not(objective, mode, figures(row), it, known=shown.known), True))
        return reported

    def _why_not_now(self, shown: Forecast, row: int, awaited: Wait) -> str:
        """Why a job waits although it could start on `row`."""
        cost, seconds = self.ranking.outlook.of(row)
        mode: Mode = "late" if awaited.late else "safe"
        waits = explain.Figures(awaited.finish_s, awaited.cost_nano_usd, 0.0, 0.0)
        starts = explain.Figures(seconds, cost, 0.0, 0.0)
        return explain.why_not(self.demand.job.spec.objective, mode, starts, waits, known=shown.known)

    def _why_not_bought(
        self, shown: Forecast, instead: int, awaited: Wait | None, shown_of: Callable[[int], Shown]
    ) -> str:
        """Why a job that waits does not start on the on-demand offer of `instead`."""
        if self.ranking.rejection_reasons[instead] != NONE:
            return explain.why_rejected(self.demand, self.market, shown, self.ranking, instead, shown_of)
        return "" if awaited is None else self._why_not_now(shown, instead, awaited)


def _best(order: list[int], market: Market) -> list[int]:
    """The first rows of an order, and the best row at another site, where a standby would go."""
    head = order[:LIST_BEST]
    site = market.listing.site
    if all(site[row] == site[order[0]] for row in head):
        head += [row for row in order[LIST_BEST:] if site[row] != site[order[0]]][:1]
    return head


def _misses(ranking: Ranking, limit: int | None) -> list[int]:
    """At most `limit` rejected rows (None: all). Rows whose reason is checked last come first."""
    rejection_reasons = ranking.rejection_reasons
    if limit is None:
        barred = np.flatnonzero(rejection_reasons != NONE)
        ordered: list[int] = barred[np.argsort(-rejection_reasons[barred], kind="stable")].tolist()
        return ordered
    rows: list[int] = []
    for rejection_reason in _NEAREST_FIRST:
        if len(rows) < limit and ranking.counts[rejection_reason]:
            rows += np.flatnonzero(only(rejection_reasons, rejection_reason))[: limit - len(rows)].tolist()
    return rows


class _Sheet:
    """The columns of a forecast as lists. Building alternatives from lists is much faster than from arrays.

    A job that goes to the first row of `course` may move to the other rows of `course` as soon as they have capacity.
    `wait_s` gives, by row, the market seconds until capacity is expected.
    """

    def __init__(
        self,
        forecast: Forecast,
        filtered: Filtered,
        rivals: Rows,
        outlook: Outlook,
        course: Sequence[int] = (),
        wait_s: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        market, rows = forecast.pool.market, forecast.pool.rows
        self._forecast = forecast
        self._ids = market.ids
        rejection_reasons = filtered.rejection_reasons[rows]
        fitting = fits(rejection_reasons)
        self._fits = fitting.tolist()
        self._price, self._age = market.price[rows].tolist(), market.price_age_s(rows).tolist()
        self._speed_known = forecast.speed_known
        self._rate, self._per_step = _listed(forecast.over_rows(forecast.rate)), _listed(forecast.per_step)
        may_win = np.zeros(len(rows), np.bool_)
        may_win[forecast.pool.positions(rivals)] = True
        priced = market.priced[rows]
        self._spreads = outlook.spreads(forecast)
        waits_s = np.zeros(len(rows))
        for row, seconds in wait_s.items():
            waits_s[forecast.pool.at(row)] = seconds
        found = self._spreads.going(may_win & fitting & priced, waits_s if wait_s else None)
        self.seconds = [_listed(each) for each in (found.low_s, found.mid_s, found.high_s)]
        low_cost = found.low_cost
        if course:
            at = forecast.pool.positions(np.array(course, np.int64))
            low_cost[at[0]] = low_cost[at].min()
        self.costs = [_listed(each) for each in (low_cost, found.mid_cost, found.high_cost)]

    def view(self, row: int, reason: str, feasible: bool) -> Alternative:
        """The alternative of a row for a job that goes there from its present place."""
        at = self._forecast.pool.at(row)
        seconds, costs = ([each[at] for each in columns] for columns in (self.seconds, self.costs))
        return self._made(row, at, seconds, costs, reason, feasible)

    def shown(self, row: int) -> Shown:
        """The figures shown for a row."""
        at = self._forecast.pool.at(row)
        return Shown(self.costs[1][at], self.seconds[1][at], self.costs[2][at], self.seconds[2][at])

    def afresh(self, row: int) -> Alternative:
        """The alternative of a row for a job that is not running."""
        forecast = self._forecast
        at = forecast.pool.at(row)
        found = self._spreads.afresh()
        times, costs = (
            [float(each[at]) for each in columns]
            for columns in ((found.low_s, found.mid_s, found.high_s), (found.low_cost, found.mid_cost, found.high_cost))
        )
        return self._made(row, at, times, costs, "", True)

    def _made(
        self, row: int, at: int, seconds: list[float], costs: list[float], reason: str, feasible: bool
    ) -> Alternative:
        """An alternative. `seconds` and `costs` are each (5th percentile, expected, 95th percentile)."""
        fits, price, known = self._fits[at], self._price[at], self._forecast.known
        early_s, duration_s, late_s = seconds if fits and known else (None, None, None)
        speed_known = fits and self._speed_known
        low, mid, high = (round(cost) for cost in costs) if fits and price >= 0 and known else (None, None, None)
        return Alternative(
            offer_id=self._ids[row],
            nano_usd_per_hour=max(price, 0),
            price_age_s=self._age[at],
            steps_per_s=self._rate[at] if speed_known else None,
            nano_usd_per_step=self._per_step[at] if speed_known and price >= 0 else None,
            cost_nano_usd=mid,
            cost_low_nano_usd=low,
            cost_high_nano_usd=high,
            duration_s=duration_s,
            feasible=feasible,
            reason=reason,
            duration_low_s=early_s,
            duration_high_s=late_s,
            relative_speed=self._forecast.relative_speed(row) if fits and not speed_known else None,
        )


def _listed(column: Floats) -> list[float]:
    return column.tolist()  # type: ignore[no-any-return]
