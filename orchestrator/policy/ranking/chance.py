"""Chance: the probability that a job meets its limits on each offer. Used if no offer is certain to meet them.

Time and money are modelled as log-normal. Under a deadline, a spot machine must also not be lost more often than the
slack allows, where each loss takes a restart and an outage; without slack, it must not be lost at all. If there is a
budget as well, the job may rent on-demand after the first loss, if the amount that spot has saved by then pays for it.

If the job's speed is unknown, it can be measured on a spot machine first, and on-demand is rented as soon as the speed
is known. If that is nearly as safe as renting on-demand at once, the cheapest such spot machine is best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.probe import LONGEST_PROBE_S
from orchestrator.policy.ranking.cost import Z95, Forecast
from orchestrator.policy.ranking.outages import mean_outages_h
from orchestrator.policy.ranking.pool import Floats

Bools = NDArray[np.bool_]

SURER = 0.05
"""How much higher the probability on another offer must be before a job at risk moves there."""


@dataclass(frozen=True, slots=True, eq=False)
class Chances:
    """The chances over the rows of a pool.

    `probability` is that of meeting every limit (0 for rows that are not candidates). `falling` is the main sort key,
    smaller first; between equal rows, on-demand and then the cost decide. `measured_first` says whether the probability
    assumes that the job is measured on the row before on-demand is rented.
    """

    probability: Floats
    falling: Floats
    measured_first: Bools


def chances(
    forecast: Forecast, candidates: Bools, usable: Bools, left_s: float | None, left_nano_usd: int | None
) -> Chances:
    """The chances of the candidates, which are among the `usable` rows."""
    rows, size = np.flatnonzero(candidates), len(candidates)
    low, mid, high = forecast.low, forecast.mid, forecast.at_95
    p, first = np.ones(len(rows)), np.zeros(len(rows))
    if left_nano_usd is not None and forecast.known:
        p = _below(float(left_nano_usd), low.cost[rows], mid.cost[rows], high.cost[rows])
    if left_s is not None:
        first = _measured_first(forecast, rows, left_s, p)
        alone = _below(left_s, low.seconds[rows], mid.seconds[rows], high.seconds[rows])
        p = p * alone * few_losses(forecast, rows, left_s)
        if left_nano_usd is not None and forecast.known:
            bought = np.flatnonzero(usable & ~forecast.pool.spot)
            p = np.maximum(p, _bought_later(forecast, rows, bought, left_s, float(left_nano_usd)))
    leads, p = (first > 0) & (first >= p), np.maximum(p, first)
    best = p.max()
    probability, falling, measured_first = np.zeros(size), np.zeros(size), np.zeros(size, np.bool_)
    probability[rows], measured_first[rows] = p, leads
    falling[rows] = np.where(leads & (p >= best - SURER), -1 - best, -p)
    return Chances(probability, falling, measured_first)


def few_losses(forecast: Forecast, rows: NDArray[np.int64], left_s: float) -> Floats:
    """The probability that the machine of each row is lost no more often than the time left allows; 1 for on-demand."""
    pool, mid, found = forecast.pool, forecast.mid, np.ones(len(rows))
    spot = np.flatnonzero(pool.spot[rows])
    if not spot.size:
        return found
    at = rows[spot]
    expected, setback_s = (forecast.over_rows(column)[at] for column in (mid.losses, forecast.setback_s))
    each_s = setback_s + 3600 * mean_outages_h(pool.market, pool.rows[at])
    slack_s = left_s - (mid.seconds[at] - expected * setback_s)
    found[spot] = _poisson(np.floor(np.maximum(slack_s, 0.0) / np.maximum(each_s, 1.0)), expected)
    return found


def _bought_later(
    forecast: Forecast, rows: NDArray[np.int64], bought: NDArray[np.int64], left_s: float, left: float
) -> Floats:
    """The probability of meeting both limits, if the job runs on the spot machine of each row and rents on-demand once
    it is lost; 0 for on-demand rows.

    The amount that spot saves until then must pay for on-demand, so the first loss must come neither too soon nor too
    late.
    """
    pool, mid, most, found = forecast.pool, forecast.mid, forecast.at_95, np.zeros(len(rows))
    spot = np.flatnonzero(pool.spot[rows])
    in_time = bought[most.seconds[bought] <= left_s]
    if not spot.size or not in_time.size:
        return found
    at, by = rows[spot], in_time[most.cost[in_time].argmin()]
    losses, setback_s = (forecast.over_rows(column)[at] for column in (mid.losses, forecast.setback_s))
    alone_s, cost = mid.seconds[at] - losses * setback_s, mid.cost[at]
    # If the machine is lost after a share of the work, the rest runs on demand.
    timely = _shares_within(left_s, most.seconds[by] + setback_s, alone_s + setback_s)
    paid = _shares_within(left, most.cost[by], cost)
    begin, end = np.maximum(timely[0], paid[0]), np.minimum(timely[1], paid[1])
    kept = np.exp(-losses) + np.maximum(np.exp(-losses * begin) - np.exp(-losses * end), 0.0)
    found[spot] = np.where((alone_s <= left_s) & (cost <= left), kept, 0.0)
    return found


def _shares_within(limit: float, at_0: Floats | float, at_1: Floats) -> tuple[Floats, Floats]:
    """(begin, end): between these shares of the work (0 to 1), a straight line from `at_0` to `at_1` is at most
    `limit`.

    If it never is, begin is not below end.
    """
    change = at_1 - at_0
    crossing = np.clip((limit - at_0) / np.where(np.abs(change) < 1.0, 1.0, change), 0, 1)
    begin = np.where(at_0 <= limit, 0.0, np.where(at_1 <= limit, crossing, 1.0))
    end = np.where(at_1 <= limit, 1.0, np.where(at_0 <= limit, crossing, 0.0))
    return begin, end


def _measured_first(forecast: Forecast, rows: NDArray[np.int64], left_s: float, paid: Floats) -> Floats:
    """The probability of meeting the limits on demand after measuring the job on each spot row.

    0 for rows where it is already measured, where on-demand of the same kind costs no more, or where finishing is not
    expected to cost less than on an on-demand offer that is nearly as likely. While the job is measured, the machine
    may be lost once. `paid` is the probability that the budget pays for each row.
    """
    pool, low, mid, high = forecast.pool, forecast.low, forecast.mid, forecast.at_95
    on_demand = ~pool.spot[rows]
    bought, paid = rows[on_demand], paid[on_demand]
    found, kind = np.zeros(len(rows)), pool.kind[pool.cell]
    for index in np.flatnonzero((pool.spot & forecast.measurable)[rows]).tolist() if bought.size else ():
        row, cell = rows[index], pool.cell[rows[index]]
        if (mid.price_s[bought[kind[bought] == kind[row]]] <= mid.price_s[row]).any():
            continue
        rest_s = left_s - float(forecast.begin_s[cell] + forecast.setback_s[cell]) - LONGEST_PROBE_S
        likely = paid * _below(rest_s, low.seconds[bought], mid.seconds[bought], high.seconds[bought])
        best = likely.max()
        if (mid.cost[bought[likely >= best - SURER]] > mid.cost[row]).all():
            found[index] = best
    return found


def _below(limit: float, low: Floats, mid: Floats, high: Floats) -> Floats:
    """P(X <= limit) for an X with this median and 5th to 95th percentile, log-normal on either side of the median.

    Only the side of the median where the limit lies counts: start-up time affects mostly the 5th percentile, and must
    not make another machine look more certain.
    """
    if limit <= 0:
        return np.zeros(len(mid))
    safe_mid = np.maximum(mid, 1e-9)
    least = np.minimum(np.maximum(low, 1e-9), safe_mid)
    half = np.where(limit >= safe_mid, np.maximum(high, safe_mid) / safe_mid, safe_mid / least)
    sigma = np.maximum(np.log(half) / Z95, 1e-6)
    return np.where(mid <= 0, 1.0, normal_cdf(np.log(limit / safe_mid) / sigma))


def _poisson(most: Floats, mean: Floats) -> Floats:
    """P(N <= most) for Poisson variables with this mean, to within 0.01; exact where `most` is 0. Uses Wilson and
    Hilferty (1931) for the chi-squared distribution with 2 (most + 1) degrees of freedom."""
    ninth = 1 / (9 * (most + 1))
    close: Floats = 1 - normal_cdf((np.cbrt(mean / (most + 1)) - (1 - ninth)) / np.sqrt(ninth))
    return np.where(most < 1, np.exp(-mean), close)


def normal_cdf(z: Floats) -> Floats:
    """Distribution function of the standard normal to 1.5e-7 (Abramowitz and Stegun 7.1.26); numpy has no erf."""
    x = np.abs(z) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = poly * np.exp(-x * x) / 2
    return np.where(z >= 0, 1 - tail, tail)
