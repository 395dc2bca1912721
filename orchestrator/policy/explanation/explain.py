"""Explain: the texts of a plan: why an offer was chosen, why another was not, and what would change the choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from orchestrator.formats.readable import span
from orchestrator.market import Market, why_over_quota
from orchestrator.model import CHEAPEST, JobSpec, Objective, Rejection
from orchestrator.policy.demand import TIME_TOLERANCE, Demand
from orchestrator.policy.explanation.misses import why_chosen_late, why_late, why_over_budget
from orchestrator.policy.explanation.nearest import budget_remedy, nearest_miss
from orchestrator.policy.explanation.no_room import why_no_room
from orchestrator.policy.gate import promise
from orchestrator.policy.ranking.cost import Forecast
from orchestrator.policy.ranking.eligible import NONE, SHUT_FOR_A_WHILE, Filtered, RejectionReason
from orchestrator.policy.ranking.limits import POSSIBLE, budget_left, time_left_s
from orchestrator.policy.ranking.objectives import log_value
from orchestrator.policy.ranking.order import Mode, Ranking
from orchestrator.policy.ranking.outlook import Shown
from orchestrator.policy.ranking.patience import Wait
from providers.hardware import GPUS
from providers.money import about_usd, at_most_usd, whole_usd

_TOPIC = {
    RejectionReason.GPU: "GPU type",
    RejectionReason.GPU_COUNT: "number of GPUs",
    RejectionReason.GPU_MEMORY: "GPU memory",
    RejectionReason.CPU: "CPUs",
    RejectionReason.MEMORY: "memory",
    RejectionReason.CLOUD: "cloud",
    RejectionReason.REGION: "region",
    RejectionReason.CAPACITY_TYPE: "capacity type",
    RejectionReason.OTHER_MARKET: "simulated or real",
    RejectionReason.QUOTA: "your quota",
    RejectionReason.TOO_FEW_MACHINES: "number of machines",
    RejectionReason.NO_PRICE: "unknown price",
    RejectionReason.DOUBTED_PRICE: "doubtful price",
    RejectionReason.STALE_PRICE: "old price",
    RejectionReason.RENT_LIMIT: "your limits",
    RejectionReason.QUOTA_IN_USE: "your quota, in use",
    RejectionReason.MACHINES_IN_USE: "your machines, in use",
    RejectionReason.NO_CAPACITY: "no capacity",
    RejectionReason.FAILED_LATELY: "failed placements",
    RejectionReason.RESERVED: "a reservation for other jobs",
    RejectionReason.DEADLINE: "deadline",
    RejectionReason.BUDGET: "budget",
}

MAY_PASS = frozenset(
    _TOPIC[rejection_reason]
    for rejection_reason in (RejectionReason.NO_PRICE, RejectionReason.DOUBTED_PRICE, *SHUT_FOR_A_WHILE)
)
"""The topics of rejections that may go away with time."""
OLD_PRICE = _TOPIC[RejectionReason.STALE_PRICE]
FOR_MONEY = _TOPIC[RejectionReason.BUDGET]
"""The topic of rejections that a larger budget would change."""
OTHER_GPU = _TOPIC[RejectionReason.GPU]
"""The topic of rejections because the job does not name the GPU type."""

OVER_LIMITS = _TOPIC[RejectionReason.RENT_LIMIT]
"""The topic of rejections that a higher limit of the installation or of the project would change."""


NOT_MEASURED = "not measured yet"


def _odds(chance: float) -> str:
    """A probability in words that never claim certainty."""
    return f"{min(chance, 0.99):.0%}"


def topic(rejection_reason: RejectionReason) -> str:
    """What a constraint is about, in a few words."""
    return _TOPIC[rejection_reason]


def why_rejected(
    demand: Demand,
    market: Market,
    forecast: Forecast,
    ranking: Ranking,
    row: int,
    shown: Callable[[int], Shown] | None = None,
) -> str:
    """The binding reason why a row is rejected; both reasons if it can meet neither the deadline nor the budget.
    `shown` returns the figures shown for a row, if they are known already."""
    match RejectionReason(int(ranking.rejection_reasons[row])):
        case RejectionReason.DEADLINE:
            return why_late(demand, forecast, ranking, row, (shown or ranking.outlook.shown)(row))
        case RejectionReason.BUDGET:
            return why_over_budget(demand, forecast, row, (shown or ranking.outlook.shown)(row))
        case RejectionReason.FAILED_LATELY:
            return dict(demand.excluded)[market.ids[row]]
        case RejectionReason.RESERVED:
            return "reserved for other jobs at present; this job gets its turn later"
        case RejectionReason.RENT_LIMIT:
            return why_over_limits(demand, market, row)
        case rejection_reason:
            kind = market.listing.kinds[int(market.listing.kind[row])]
            short = max(forecast.perf.shortfalls(demand.job, (kind,)), default=0)
            return why_unfit(demand.job.spec, market, rejection_reason, row, short)


def why_unfit(
    spec: JobSpec, market: Market, rejection_reason: RejectionReason, row: int, shortfall_bytes: int = 0
) -> str:
    """Why a row is rejected, for reasons that do not depend on cost or time. `shortfall_bytes` is the GPU memory that
    is missing for one step of the job. Raises ValueError for other reasons."""
    wants, gpu = spec.resources, market.gpu(row)
    match rejection_reason:
        case RejectionReason.GPU:
            return f"GPU {gpu} is not in resources.gpu" if gpu else "has no GPU"
        case RejectionReason.GPU_COUNT:
            counts = " or ".join(str(g.count) for g in wants.gpus if g.name == gpu)
            return f"has {market.offer(row).gpu_count} x {gpu}, resources.gpu asks for {counts}"
        case RejectionReason.GPU_MEMORY:
            return _why_memory(gpu, wants.gpu_memory_bytes, shortfall_bytes)
        case RejectionReason.CPU:
            cpus = market.offer(row).vcpu
            return f"has {cpus} CPUs, resources.cpu asks for {wants.cpu}" if cpus else "its number of CPUs is unknown"
        case RejectionReason.MEMORY:
            memory = market.offer(row).memory_bytes
            return (
                f"has {memory / 1e9:.0f} GB of memory, less than resources.memory"
                if memory
                else "its memory is unknown"
            )
        case RejectionReason.CLOUD:
            return f"cloud {market.place(row)[0]} is excluded by where.clouds"
        case RejectionReason.REGION:
            return f"region {market.place(row)[1]} is excluded by where.regions"
        case RejectionReason.CAPACITY_TYPE:
            return f"{'spot' if market.spot[row] else 'on_demand'} is not in capacity"
        case RejectionReason.OTHER_MARKET:
            if market.place(row)[0] in market.listing.simulated_providers:
                return "simulated, and not compared with real offers (where.clouds selects it)"
            return "real, and not compared with the simulated offers that the job has used"
        case (
            RejectionReason.QUOTA
            | RejectionReason.QUOTA_IN_USE
            | RejectionReason.TOO_FEW_MACHINES
            | RejectionReason.MACHINES_IN_USE
        ):
            return why_over_quota(market.rooms[row], wants.nodes)
        case RejectionReason.NO_PRICE:
            return "no price is known"
        case RejectionReason.DOUBTED_PRICE:
            return market.doubts[row]
        case RejectionReason.STALE_PRICE:
            return f"price is {span(float(market.price_age_s(np.array([row]))[0]))} old"
        case RejectionReason.NO_CAPACITY:
            sign = "a machine was lost there" if market.backed_off_by_loss[row] else "no capacity"
            return f"{sign} {span((market.at - int(market.backed_off_at[row])) / 1000)} ago"
        case _:
            raise ValueError(f"{rejection_reason.name} depends on more than the offer")


def why_over_limits(demand: Demand, market: Market, row: int) -> str:
    """Which limit of the installation or the project a row exceeds, and by how much."""
    rent, nodes, price = demand.rent, demand.nodes, int(market.price[row])
    if nodes > rent.machines:
        wanted = "the job needs a machine" if nodes == 1 else f"the job needs {nodes} machines"
        return f"{wanted}, but {rent.machines_by} is {rent.machines}"
    much = f"{whole_usd(price)}/h" + (f" for {nodes} machines" if nodes > 1 else "")
    return f"{much} is more than {rent.rate_by} ({whole_usd(round(rent.nano_usd_per_hour))})"


_MOST_PLACES = 4  # of a budget that was set by a user
_NO_GAIN = "saves nothing compared with staying"
_NOTABLE_RISE = 0.05  # an expected price rise that explains why a lower price is not chosen


_MOST_SHARE = 10
_ALL = 0.99  # a saving that lasts for this share of the work counts as lasting to the end


class Figures(NamedTuple):
    """The figures used to compare an offer: expected seconds and nano-USD to finish, its chance in mode "likely", and
    `rise`, the share by which its future mean price is expected to exceed the present price. `measures`: the chance
    assumes that the job's speed is measured there before an on-demand machine is rented."""

    seconds: float
    cost: float
    chance: float
    rise: float
    measures: bool = False


def why_not(objective: Objective, mode: Mode, row: Figures, chosen: Figures, *, known: bool) -> str:
    """Why a candidate that ranks behind the chosen offer was not chosen. `known`: whether the number of steps is
    known."""
    if mode == "likely":
        return _why_not_likely(row, chosen, known=known)
    more_s, more_usd = row.seconds - chosen.seconds, row.cost - chosen.cost
    if mode == "late":
        if more_s < 1:
            more = f"{about_usd(round(max(more_usd, 0.0)))} more" if known else "more"
            return f"finishes no later, but costs {more}"
        return f"would finish {span(more_s)} later"
    worse = math.expm1(log_value(objective, row.cost, row.seconds) - log_value(objective, chosen.cost, chosen.seconds))
    if objective.cost_weight == 0 and more_s >= 1:
        return f"{span(more_s)} slower" if known else f"{worse:.0%} slower"
    if objective.cost_weight == 0 and -TIME_TOLERANCE <= worse <= -0.0005 and more_usd >= 1:
        more = (
            f"{about_usd(round(more_usd))} more" if known else f"{more_usd / max(chosen.cost, 1.0):.0%} more per step"
        )
        return f"only {-worse:.1%} faster, {more}"
    if objective.time_weight == 0 and more_usd >= 1:
        share = f"{worse:.0%}" if worse < _MOST_SHARE else ""  # no share relative to an owned machine, which is free
        if known:
            more = f"{about_usd(round(more_usd))} {f'({share}) ' if share else ''}more to finish"
        else:
            more = f"{share} more per step" if share else f"more than {_MOST_SHARE} times as much per step"
        if worse < 0.005:
            more = "costs about the same"
        return (
            f"{more}: its price is likely to rise by {row.rise:.0%}"
            if row.rise >= _NOTABLE_RISE and row.rise - chosen.rise >= _NOTABLE_RISE
            else more
        )
    if worse < 0 and not known:
        return f"may be {-worse:.0%} better ({objective.name}), but costs more to try, and its speed is an estimate"
    if worse >= 0.0005:
        return f"{worse:.1%} worse in {objective.name}"
    if more_usd >= 1:
        return f"no faster, {about_usd(round(more_usd))} more" if known else "no faster, but costs more"
    return "about the same"


def _why_not_likely(row: Figures, chosen: Figures, *, known: bool) -> str:
    """Why the chosen offer is preferred if no offer is certain to meet the limits."""
    odds, first, more_usd = _odds(row.chance), chosen.measures and not row.measures, row.cost - chosen.cost
    if odds != _odds(chosen.chance):
        text = f"{odds} likely to meet your limits, compared with {_odds(chosen.chance)} for the chosen offer"
        return f"{text}, where the job's speed is measured first" if first else text
    if first:
        return f"as likely to meet your limits ({odds}), but would be rented before the job's speed is measured"
    more = f", {about_usd(round(more_usd))} more to finish" if known and more_usd >= 1 else ""
    return f"as likely to meet your limits ({odds}){more}"


def why_not_moved(demand: Demand, forecast: Forecast, ranking: Ranking, row: int, current: int, held: str) -> str:
    """Why the job stays although `row` ranks before the current offer."""
    gain = _gain(demand.job.spec.objective, forecast, ranking, row, current)
    return f"{gain}, but the job {held}" if held else f"{gain}, which does not pay for the move"


def why_barred(demand: Demand, market: Market, forecast: Forecast, ranking: Ranking, row: int, current: int) -> str:
    """Why the limits on what the job may rent at once prevent a move to `row`, which would be better."""
    if ranking.rejection_reasons[current] != NONE:
        gain = "would fit"
    elif ranking.mode == "likely":
        here, there = _odds(ranking.odds(current)), _odds(ranking.odds(row))
        gain = f"{there} likely to meet your limits, compared with {here} on its current offer"
    elif ranking.mode == "late":
        gain = f"would finish {span(ranking.seconds(current) - ranking.seconds(row))} sooner"
    else:
        gain = _gain(demand.job.spec.objective, forecast, ranking, row, current)
    return f"{gain}, but {why_no_room(demand, market, row, current)}"


def why_given_up(demand: Demand, forecast: Forecast, ranking: Ranking, row: int, current: int) -> str:
    """Why the rest of a move to `row` that has begun does not pay."""
    if ranking.mode == "likely":
        stays, moves = _odds(ranking.odds(current)), _odds(ranking.odds(row))
        return f"{stays} likely to meet its limits if it stays, {moves} if it moves"
    objective = demand.job.spec.objective
    more_s = ranking.seconds(row) - ranking.seconds(current)
    more_usd = ranking.cost(row) - ranking.cost(current)
    costs_more = ranking.mode != "late" and forecast.known and more_usd > 0
    if ranking.mode != "late" and objective.cost_weight == 0 and _near(ranking, row, current) and costs_more:
        worse = f"finishing there would cost {about_usd(round(more_usd))} more than staying, and be no faster"
    elif (ranking.mode == "late" or objective.cost_weight == 0) and more_s > 0:
        worse = f"finishing there would take {span(more_s)} longer than staying"
    elif objective.time_weight == 0 and costs_more:
        worse = f"finishing there would cost {about_usd(round(more_usd))} more than staying"
    else:
        worse = f"{_gain(objective, forecast, ranking, row, current)}, which does not pay for the rest of the move"
    kept = [
        promise
        for promise, given in (("deadline", demand.job.deadline_at_ms), ("budget", demand.job.spec.budget_nano_usd))
        if given is not None and ranking.mode == "safe"
    ]
    return f"it meets its {' and '.join(kept)} without the move, and {worse}" if kept else worse


def why_chosen(
    demand: Demand, market: Market, forecast: Forecast, ranking: Ranking, row: int, left_behind: int | None
) -> str:
    """Why a job is placed on, moved to or kept at `row`. `left_behind` is the row that it moves away from, if any."""
    if left_behind is not None:
        if ranking.rejection_reasons[left_behind] != NONE:
            return f"its current offer is ruled out: {why_rejected(demand, market, forecast, ranking, left_behind)}"
        if ranking.mode == "safe":
            return _gain(demand.job.spec.objective, forecast, ranking, row, left_behind)
    if ranking.mode == "likely":
        chance = f"no offer is certain to meet your limits; this one has a {_odds(ranking.odds(row))} chance"
        return chance + ", and the job's speed is measured before on-demand is rented" * ranking.measured_first(row)
    if not forecast.speed_known:
        return why_begun(demand)
    seconds = ranking.seconds(row)
    left_s = time_left_s(demand, forecast)
    if ranking.mode == "late":
        return why_chosen_late(demand, forecast, ranking, row)
    objective = demand.job.spec.objective
    per_thousand = about_usd(round(float(forecast.per_step[forecast.pool.at(row)]) * 1000))
    if objective.cost_weight == 0 and seconds > ranking.earliest_s:
        text = f"lowest cost within {TIME_TOLERANCE:.0%} of the earliest finish: {span(seconds)}"
    elif objective.cost_weight == 0:
        text = f"fastest to finish: {span(seconds)}"
    elif objective.time_weight == 0:
        text = f"cheapest to finish: {per_thousand} per 1,000 steps"
    else:
        text = f"best in {objective.name}: {per_thousand} per 1,000 steps"
    if not forecast.known:
        return f"{text}; the number of remaining steps is not known yet"
    if left_s is not None:
        # A few losses leave enough time, but waits for capacity after rare losses may push the mean past the deadline.
        early_s = left_s - seconds
        text += f", {span(early_s)} before" if early_s >= 0 else f", on average {span(-early_s)} after"
        text += " the deadline"
    left = budget_left(demand)
    if left is not None:
        text += f", within the {_whole_or_less(left)} left of the budget"
    return text if left_s is None else text + _without_on_demand(ranking, row)


def _whole_or_less(left_nano_usd: int) -> str:
    """The remaining budget, never rounded up; exactly as the user set it if nothing is spent."""
    whole = whole_usd(left_nano_usd)
    return whole if len(whole.partition(".")[2]) <= _MOST_PLACES else at_most_usd(left_nano_usd)


def why_too_long(demand: Demand, forecast: Forecast, row: int) -> str:
    """A warning that training on a row takes longer than the job's max_duration, at which it fails; empty if not."""
    longest_s = demand.job.spec.max_duration_s
    if longest_s is None or not forecast.known:
        return ""
    takes_s = float(forecast.mid.run_s[forecast.pool.cell[forecast.pool.at(row)]])
    if takes_s <= longest_s:
        return ""
    return f"; training takes about {span(takes_s)}, but the job fails at its max_duration of {span(longest_s)}"


def _without_on_demand(ranking: Ranking, row: int) -> str:
    """A warning if meeting the deadline depends on spot capacity, because no on-demand machine can be rented to meet
    it."""
    limits, pool = ranking.outlook.limits, ranking.pool
    if limits.left_s is not None or not pool.spot[pool.at(row)]:
        return ""
    bought = pool.rows[~pool.spot]
    why = "no on-demand machine may be used"
    if limits.short_of_money:
        able = any(ranking.tier(row) == POSSIBLE for row in bought.tolist())
        why = f"the budget {'may not pay for an' if able else 'pays for no'} on-demand machine"
    elif (ranking.rejection_reasons[bought] == RejectionReason.DEADLINE).any():
        why = "no on-demand machine is fast enough"
    return f"; {why}, so whether the deadline is met depends on spot capacity"


def why_begun(demand: Demand) -> str:
    """Why a job of unknown speed starts on an offer, or stays there."""
    promises = [
        name
        for name, given in (("deadline", demand.job.deadline_at_ms), ("budget", demand.job.spec.budget_nano_usd))
        if given is not None
    ]
    objective = demand.job.spec.objective
    best = "best" if objective.cost_weight and objective.time_weight else objective.name
    text = f"{NOT_MEASURED}: Tradewind measures the job where that costs least, among the offers that could be {best}"
    return f"{text}; after that, it knows whether the job can meet its {' and '.join(promises)}" if promises else text


def rejections(ranking: Ranking) -> tuple[Rejection, ...]:
    """The number of offers that each constraint rejects, largest first."""
    found = sorted((-count, rejection_reason) for rejection_reason, count in ranking.counts.items() if count)
    return tuple(Rejection(_TOPIC[rejection_reason], -count) for count, rejection_reason in found)


def why_waiting(demand: Demand, market: Market, forecast: Forecast, ranking: Ranking, filtered: Filtered) -> str:
    """Why no offer can be used: the most common reason, the reason of the offer that comes closest and, if the budget
    is too small, one that would be enough."""
    if not len(market):
        return "no offers are known"
    (most, *others), nearest = rejections(ranking), nearest_miss(market, forecast, ranking)
    last = _TOPIC[RejectionReason(int(ranking.rejection_reasons[nearest]))]
    closer = "".join(f", {each.count} on {each.topic}" for each in others if each.topic == last)
    reason = why_rejected(demand, market, forecast, ranking, nearest)
    text = (
        f"no offer fits: {most.count} of {len(market)} fail on {most.topic}{closer}; "
        f"nearest miss {market.ids[nearest]}: {reason}"
    )
    return (
        text + budget_remedy(demand, forecast, filtered)
        if ranking.rejection_reasons[nearest] == RejectionReason.BUDGET
        else text
    )


def why_patient(demand: Demand, market: Market, forecast: Forecast, awaited: Wait) -> str:
    """Why a job waits for an offer although another one has capacity. Details that change by the minute come after the
    semicolon."""
    saving = round(awaited.saving_nano_usd)
    text = f"waiting for {market.ids[awaited.row]}; it should be available again in about {span(awaited.seconds)}"
    if saving > 0 and not awaited.late:
        text += f" and saves {about_usd(saving)}"
    elif awaited.sooner_s > 0:
        text += f" and finishes {span(awaited.sooner_s)} earlier"
        text += f" for {about_usd(-saving)} more" if saving < 0 else ""
    left_s = time_left_s(demand, forecast)
    if left_s is None:
        return text
    if left_s <= awaited.finish_s and awaited.late:
        return f"{text}, but {span(awaited.finish_s - left_s)} after the deadline"
    if left_s <= awaited.finish_s:
        return f"{text}; if the wait takes longer, on-demand can still meet the deadline"
    return f"{text}, with {span(left_s - awaited.finish_s)} to spare before the deadline"


def _why_memory(gpu: str | None, wants: tuple[int, int | None] | None, shortfall_bytes: int) -> str:
    if gpu is None:
        return "has no GPU"
    least, most = wants or (0, None)
    has = GPUS[gpu].memory_bytes
    if has < least:
        return f"{gpu} has {has / 1e9:.3g} GB, {(least - has) / 1e9:.3g} GB less than resources.gpu_memory"
    if most is None or has <= most:
        return f"{gpu} has {has / 1e9:.3g} GB, {shortfall_bytes / 1e9:.3g} GB less than a step takes (profiled)"
    return f"{gpu} has {has / 1e9:.3g} GB, {(has - (most or 0)) / 1e9:.3g} GB more than resources.gpu_memory"


def _gap(objective: Objective, ranking: Ranking, row: int, other: int) -> float:
    """The logarithm of the objective at `row`, minus that at `other`."""
    return log_value(objective, *ranking.outlook.of(row)) - log_value(objective, *ranking.outlook.of(other))


def why_instead(demand: Demand, forecast: Forecast, ranking: Ranking, row: int, target: int) -> str:
    """Why a job that is not running yet goes to `row` instead of `target`; the text follows the offer's id."""
    if ranking.mode == "likely":
        return f"is now {ranking.odds(row):.0%} likely to meet its limits, compared with {ranking.odds(target):.0%}"
    objective = demand.job.spec.objective
    sooner_s = ranking.seconds(target) - ranking.seconds(row)
    less = round(ranking.cost(target) - ranking.cost(row))
    if objective.cost_weight == 0 and less > 0 and _near(ranking, row, target):
        if forecast.known:
            return f"finishes within {TIME_TOLERANCE:.0%} of the same time and now costs {about_usd(less)} less"
        objective = CHEAPEST
    if forecast.known and (ranking.mode == "late" or objective.cost_weight == 0):
        return f"would finish {span(sooner_s)} sooner now"
    if forecast.known and objective.time_weight == 0:
        return f"now costs {about_usd(less)} less"
    return f"is {-math.expm1(_gap(objective, ranking, row, target)):.1%} better in {objective.name} now"


def _near(ranking: Ranking, row: int, other: int) -> bool:
    """Whether `fastest` may treat two rows as equally fast."""
    mine, its = ranking.seconds(row), ranking.seconds(other)
    return max(mine, its) <= (1 + TIME_TOLERANCE) * min(mine, its)


def _gain(objective: Objective, forecast: Forecast, ranking: Ranking, row: int, current: int) -> str:
    """How much better `row` is than staying, including the cost and time of moving. The saving counts only until a loss
    is likely, so it may be far less than the difference between the costs to finish."""
    saved, share = promise(forecast, ranking, current, row)
    lasts = "" if share >= _ALL else f" over the next {span(share * forecast.figures(current).run_s)}"
    if objective.cost_weight == 0 and saved > 0 and _near(ranking, row, current):
        if forecast.known:
            return f"saves {about_usd(saved)}{lasts} and finishes within {TIME_TOLERANCE:.0%} of the same time"
        objective = CHEAPEST
    if objective.cost_weight == 0 and forecast.known:
        sooner_s = ranking.seconds(current) - ranking.seconds(row)
        return f"{span(sooner_s)} faster than staying" if sooner_s > 0 else _NO_GAIN
    if objective.time_weight == 0 and forecast.known and saved <= 0:
        return _NO_GAIN
    if objective.time_weight == 0 and forecast.known:
        return f"saves {about_usd(saved)} compared with staying{lasts}"
    better = -math.expm1(_gap(objective, ranking, row, current))
    return f"{better:.1%} better than staying in {objective.name}" if better > 0 else _NO_GAIN
