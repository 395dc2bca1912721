"""Trial: applies the probe rule (probe.py) to real offers, to find the offer on which to probe a long job first.

The options are the best offer of each kind of hardware that may keep the job's limits. A probe costs the move there,
the minutes on it and the move back. Time counts as money, at the rate at which the objective trades the two where the
job would run without a probe. An objective that ignores money allows no probes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.market import Market
from orchestrator.model import Probe
from orchestrator.perf import Floats, InstanceKind, PerfBook, on_host
from orchestrator.policy.demand import Demand
from orchestrator.policy.probe import PROBE_MINUTES, Option, advise
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import NONE
from orchestrator.policy.ranking.limits import POSSIBLE, budget_left, time_left_s
from orchestrator.policy.ranking.objectives import objective_keys
from orchestrator.policy.ranking.order import Ranking
from orchestrator.policy.ranking.pool import Pool, Rows
from orchestrator.policy.ranking.routes import Routes
from orchestrator.policy.room_to_move import may_have_beside

PROBE_S = PROBE_MINUTES * 60
MOST = 12  # at most this many kinds are compared


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of the probe rule. `row` is the offer to probe now. If it is None, `probe` names no offer and says
    why, or names the offer to probe later."""

    row: int | None
    probe: Probe


def trial(demand: Demand, market: Market, perf: PerfBook, forecast: Forecast, ranking: Ranking) -> Trial | None:
    """The result of the probe rule. None if the rule does not apply: there is only one kind of hardware, the speeds of
    all kinds are declared (simulated ones), the number of steps is unknown, limits are in danger, the objective ignores
    money, or the job is not measured yet where it is.

    A job of unknown speed is measured at no extra cost wherever it starts. So it starts on the offer that is expected
    to be best, and the rule says what to try next if the measurement is as expected.
    """
    pool, objective, here = forecast.pool, demand.job.spec.objective, forecast.pool.current
    if (
        ranking.mode != "safe"
        or (here is not None and ranking.rejection_reasons[here] != NONE)
        or not forecast.known
        or objective.cost_weight == 0
        or len(pool.kinds) < 2
    ):
        return None
    if all(on_host(market.listing.kinds[code]) for code in pool.kinds):
        return None
    if here is not None and not perf.measured(demand.job, _kind(market, here)):
        return None
    if not demand.job.spec.probe:
        return _none("the job file has probe: false")
    keys = objective_keys(objective, forecast.mid.cost, forecast.mid.seconds)[0]
    order = ranking.order[may_have_beside(demand, market, here, ranking.order)]
    able = np.flatnonzero((ranking.tiers >= POSSIBLE) & may_have_beside(demand, market, here, pool.rows))
    if not order.size:
        return _none("the limits leave no room for a second machine")
    best = pool.at(int(order[0]))
    if float(forecast.mid.cost[best]) <= PROBE_S * float(pool.price_s[able].min()):
        return _none("the rest of the job costs less than a probe")
    rows = _best_of_kinds(pool, keys, able, best)
    tried = rows if here is None else [*rows, here]
    forecast = forecast.over(tried)
    setback_s = max(float(forecast.setback_s[forecast.pool.cell[forecast.pool.at(row)]]) for row in tried)
    rows = _promising(demand, forecast, rows)
    if len(rows) < 2:
        return _none("no other kind could be better")
    left_s, left, commit = time_left_s(demand, forecast), budget_left(demand), forecast.pool.at(rows[0])
    on_the_way_s = PROBE_S + 2 * setback_s
    if left_s is not None and float(forecast.high.seconds[commit]) + on_the_way_s > left_s:
        return _none("the deadline leaves no time for a probe")
    posterior = perf.joint(demand.job, [_kind(market, row) for row in rows])
    options = _options(demand, market, perf, forecast, rows)
    begins = here is None and not any(option.measured for option in options)
    if begins:
        posterior = posterior.condition(0, float(posterior.mean[0]))
        options[0] = replace(options[0], measured=True)
    advice = advise(
        posterior,
        options,
        steps=forecast.steps_left,
        budget_left_nano_usd=left,
        left_s=math.inf if left_s is None else max(left_s - on_the_way_s, 0.0) / (1 + forecast.overhead),
    )
    if advice.probe is None:
        return _none(advice.reason)
    if left is not None and float(forecast.high.cost[commit]) + advice.cost_nano_usd > left:
        return _none("the budget does not cover a probe")  # plus the rest at its highest cost
    row, cost, saving = rows[advice.probe], round(advice.cost_nano_usd), round(advice.saving_nano_usd)
    return Trial(None if begins else row, Probe(market.ids[row], advice.minutes, cost, saving, advice.reason))


def _none(reason: str) -> Trial:
    return Trial(None, Probe(None, 0.0, 0, 0, reason))


def _kind(market: Market, row: int) -> InstanceKind:
    return market.listing.kinds[int(market.listing.kind[row])]


def _best_of_kinds(pool: Pool, keys: Floats, able: Rows, best: int) -> list[int]:
    """The market row at position `best` of the pool, and the best row of each other kind among the `able` positions."""
    kinds, keys, best_kind = pool.kind[pool.cell[able]], keys[able], pool.kind[pool.cell[best]]
    least = np.full(int(kinds.max()) + 1, np.inf)
    np.minimum.at(least, kinds, keys)
    winners = np.flatnonzero((keys <= least[kinds]) & (kinds != best_kind))
    first = np.full(len(least), -1)
    first[kinds[winners[::-1]]] = winners[::-1]  # of equal rows, the first
    return [int(pool.rows[best]), *pool.rows[able[first[first >= 0]]].tolist()]


def _promising(demand: Demand, forecast: Forecast, rows: list[int]) -> list[int]:
    """The first row, and those whose best case is better than its worst case; at most MOST rows in all, the best
    ones."""
    objective, at = demand.job.spec.objective, [forecast.pool.at(row) for row in rows]
    at_best, at_worst = (
        objective_keys(objective, case.cost, case.seconds)[0][at].tolist() for case in (forecast.low, forecast.high)
    )
    able = [(best, row) for best, row in zip(at_best[1:], rows[1:], strict=True) if best < at_worst[0]]
    return [rows[0], *(row for _, row in sorted(able)[: MOST - 1])]


def _options(demand: Demand, market: Market, perf: PerfBook, forecast: Forecast, rows: list[int]) -> list[Option]:
    pool, objective = forecast.pool, demand.job.spec.objective
    commit = pool.at(rows[0])
    second = objective.time_weight / objective.cost_weight * float(forecast.mid.cost[commit])
    second /= max(float(forecast.mid.seconds[commit]), 1e-3)
    # Staying costs no start; after a probe elsewhere, the job must start here again.
    again = float(pool.price_s[commit] * pool.start_s[pool.cell[commit]]) if rows[0] == pool.current else 0.0
    to_return = Routes(demand, market).from_sites(market.place(rows[0]), demand.checkpoint_bytes)
    back = again + to_return * (pool.current is not None)
    options = []
    for row in rows:
        at, kind = pool.at(row), _kind(market, row)
        cell, price_s = int(pool.cell[at]), float(pool.price_s[at])
        hourly = (
            float(forecast.per_step[at] * forecast.rate[cell] + forecast.transition_costs.upkeep_s[pool.site[cell]])
            + second
        )
        there = price_s * float(forecast.move_billed_s[cell]) + float(forecast.move_fixed[cell])
        trying = there + price_s * PROBE_S + float(back[pool.site[cell]])
        options.append(Option(kind, hourly * 3600, there, trying, perf.measured(demand.job, kind)))
    return options
