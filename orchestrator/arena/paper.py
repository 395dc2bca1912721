"""The core paper's results: Narayanan et al., "Analysis and Exploitation of Dynamic Pricing in the Public Cloud for ML
Training" (DISPA 2020), as its notebook computed them ("paper") and under the rules of a real bill ("honest").

The product (`decide` on the prices of that time) always makes the choice. The paper's peculiarities are in the data
preparation: a day is one moment with its cheapest record; a slice of a machine can be rented for its share of the
price; a price without a record that day does not change; a job that outlasts the log continues at the last price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.arena.paper_data import DAY_MS, PaperData, Series
from orchestrator.market import Market
from orchestrator.model import CHEAPEST, Job, JobSpec, Objective, TrainSpec
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, decide
from orchestrator.policy.ranking.objectives import objective_keys
from providers.money import usd as nano
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

Floats = NDArray[np.float64]

HOUR_MS = 3_600_000
MODELS = (
    "A3C",
    "CycleGAN",
    "LM (batch size 80)",
    "Recommendation (batch size 8192)",
    "ResNet-50 (batch size 128)",
    "Transformer (batch size 256)",
)
POLICIES = ("baseline", "gpu_type", "packed", "multi_cloud", "preemption", "preemption_data_movement")
DATA_MOVEMENT_USD = 9.0
_STEPS = 10**9  # the same for every job: only ratios affect the choice
_SMALL = ("p2.xlarge", "p3.2xlarge")


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The options, with their price per GPU-hour at each time: `offered` for the decision (NaN: not offered), `billed`
    to a job that is already there."""

    series: tuple[Series, ...]
    at_ms: tuple[int, ...]
    offered: Floats
    billed: Floats


class Chooser:
    """The product's choice among options for each job type, at one time. Caches its answers."""

    def __init__(self, data: PaperData, models: Sequence[str], objective: Objective = CHEAPEST) -> None:
        train = TrainSpec("paper:job", None, {}, "/", {}, (), _STEPS, None)
        self.models = tuple(models)
        self.demands = [
            Demand(
                Job(f"job_{i:02}", JobSpec(name=f"job-{i}", train=train, objective=objective), "paper", 0, "queued"),
                _STEPS,
            )
            for i, _ in enumerate(models)
        ]
        self.perf = PerfBook.as_of(
            0,
            [
                Observation(demand.job.id, gpu, 1, rate, _STEPS, 0)
                for demand, model in zip(self.demands, models, strict=True)
                for gpu, rate in data.steps_per_s[model].items()
            ],
        )
        self._known: dict[tuple[int, int], dict[str, int]] = {}

    def choices(self, options: Options, instant: int) -> Mapping[str, int]:
        """Model -> index of the option that `decide` chooses at index `instant` of the options' times."""
        key = (id(options), instant)
        if key not in self._known:
            self._known[key] = self._decide(options, instant)
        return self._known[key]

    def _decide(self, options: Options, instant: int) -> dict[str, int]:
        at_ms = options.at_ms[instant]
        rows = np.flatnonzero(np.isfinite(options.offered[:, instant])).tolist()
        offers = {row: _offer(options.series[row]) for row in rows}
        market = Market.as_of(
            at_ms,
            offers=offers.values(),
            prices=[
                PricePoint(offer.id, nano(float(options.offered[row, instant])), at_ms, at_ms, "log of 2020")
                for row, offer in offers.items()
            ],
            startup_s={"aws": 0.0, "azure": 0.0},
        )
        plan = decide(self.demands, market, self.perf, {})
        row_of = {offer.id: row for row, offer in offers.items()}
        return {
            model: row_of[str(plan.placement(demand.job.id).offer_id)]
            for model, demand in zip(self.models, self.demands, strict=True)
        }


def _offer(series: Series) -> Offer:
    """One GPU of a series as an offer: on-demand, because the paper's simulation has no preemptions."""
    return Offer(
        series.cloud, series.region, series.zone, series.instance_type, series.gpu, 1, 1, 1, CapacityType.ON_DEMAND
    )


def paper_starts(data: PaperData, region: str) -> tuple[int, ...]:
    """The times (ms) of the 30 daily starts: the log's last 35 days without the last five."""
    return tuple(day * DAY_MS for day in _calendar(data, region)[-35:-5])


def paper_costs(
    data: PaperData, region: str, days: Sequence[float], *, models: Sequence[str] = MODELS
) -> dict[tuple[float, str, str], Floats]:
    """(days, model, policy) -> US$ for each daily start, as computed by the notebook."""
    local = [series for series in data.aws if series.region == region]
    azure = [
        series for series in data.azure if series.gpus == 1
    ]  # larger ones never win: the notebook ignores their GPU count
    calendar = _calendar(data, region)
    starts = range(len(calendar) - 35, len(calendar) - 5)
    sets = {
        "baseline": _daily([s for s in local if s.instance_type == "p3.2xlarge"], calendar),
        "gpu_type": _daily([s for s in local if s.instance_type in _SMALL], calendar),
        "packed": _daily(local, calendar),
        "multi_cloud": _daily([*local, *azure], calendar),
    }
    chooser = Chooser(data, models)
    costs: dict[tuple[float, str, str], Floats] = {}
    for model in models:
        speed = data.steps_per_s[model]
        for length in days:
            for policy in POLICIES:
                dynamic = policy.startswith("preemption")
                options = sets["multi_cloud" if dynamic else policy]
                extra = DATA_MOVEMENT_USD if policy.endswith("data_movement") else 0.0
                costs[length, model, policy] = np.array(
                    [_job_cost(chooser, options, model, speed, start, length, dynamic, extra) for start in starts]
                )
    return costs


def _calendar(data: PaperData, region: str) -> list[int]:
    """The days on which the region's p3.2xlarge has a record."""
    series = [one for one in data.aws if one.region == region and one.instance_type == "p3.2xlarge"]
    return sorted({int(at) // DAY_MS for one in series for at in one.at_ms})


def _daily(series: Sequence[Series], calendar: Sequence[int]) -> Options:
    """Options by day: the cheapest record of a day is on offer; a job already there pays the day's last record, if any.

    Among equals the notebook takes the smaller type, then the newest record: nano-dollars are added to distinguish
    them.
    """
    offered = np.full((len(series), len(calendar)), np.nan)
    billed = offered.copy()
    newest = np.zeros(offered.shape)  # the time of the record on offer
    for row, one in enumerate(series):
        for at, usd in zip(one.at_ms.tolist(), (one.usd / one.gpus).tolist(), strict=True):
            column = at // DAY_MS - calendar[0]
            if 0 <= column < len(calendar):
                if not offered[row, column] < usd:
                    offered[row, column], newest[row, column] = usd, at
                billed[row, column] = usd
    size = np.broadcast_to(np.array([[one.gpus] for one in series]), offered.shape)
    order = np.lexsort((-newest, size), axis=0)
    rank = np.argsort(order, axis=0)
    at_ms = tuple(day * DAY_MS for day in range(calendar[0], calendar[-1] + 1))
    return Options(tuple(series), at_ms, offered + 1e-9 * rank, billed)


def _job_cost(
    chooser: Chooser,
    options: Options,
    model: str,
    speed: Mapping[str, float],
    start: int,
    days: float,
    dynamic: bool,
    extra: float,
) -> float:
    """The cost of one job, day by day. After the log's last day it pays the last price and no `extra`."""
    left = days * speed["V100"]  # in days of one step per second
    day, last = start, len(options.at_ms) - 1
    row = chooser.choices(options, day)[model]
    price = float(options.offered[row, day])
    cost = 0.0
    while True:
        rate = speed[options.series[row].gpu]
        if day == last:
            return cost + left / rate * 24 * price
        if left <= rate:
            return cost + left / rate * 24 * price + extra
        left -= rate
        cost += 24 * price
        day += 1
        if dynamic:
            row = chooser.choices(options, day)[model]
            price = float(options.offered[row, day])
        elif np.isfinite(options.billed[row, day]):
            price = float(options.billed[row, day])


HONEST_SETS = ("AWS us-east-1 V100", "AWS 6 regions V100", "AWS any GPU", "AWS+Azure any GPU")


def honest_options(data: PaperData, first_ms: int, last_ms: int) -> dict[str, Options]:
    """Hourly options with prices carried forward: only machines with one GPU whose series covers the whole time."""
    at_ms = tuple(range(first_ms, last_ms, HOUR_MS))
    aws = [s for s in data.aws if s.gpus == 1 and s.at_ms[0] <= first_ms]
    azure = [s for s in data.azure if s.gpus == 1 and s.at_ms[0] <= first_ms]
    v100 = [s for s in aws if s.gpu == "V100"]
    sets: dict[str, list[Series]] = {
        HONEST_SETS[0]: [s for s in v100 if s.region == "us-east-1"],
        HONEST_SETS[1]: v100,
        HONEST_SETS[2]: aws,
        HONEST_SETS[3]: [*aws, *azure],
    }
    result = {}
    for name, series in sets.items():
        now = np.array(at_ms)
        prices = np.array([s.usd[np.searchsorted(s.at_ms, now, side="right") - 1] for s in series])
        result[name] = Options(tuple(series), at_ms, prices, prices)
    return result


def honest_costs(
    data: PaperData, options: Options, models: Sequence[str], starts: Iterable[int], hours: float, every_h: int
) -> dict[str, Floats]:
    """Model -> US$ for each start (a time of `options`), with a new decision every `every_h` hours; 0: never.

    Below a day the ranking is the product's (`objective_keys`) on whole columns; from a day on it is `decide` itself.
    NaN if the job would outlast the prices: no run is scored on a series that ends inside its window.
    """
    chooser = Chooser(data, models)
    costs = {}
    begins = list(starts)
    for model in models:
        speed = data.steps_per_s[model]
        rates = np.array([speed[series.gpu] for series in options.series])
        quick = _ranked(options.offered, rates) if 0 < every_h < 24 else None
        costs[model] = np.array(
            [
                _hourly_cost(options, rates, hours * speed["V100"], start, every_h, chooser, model, quick)
                for start in begins
            ]
        )
    return costs


def _ranked(prices: Floats, rates: Floats) -> NDArray[np.int64]:
    """The product's first choice at every time."""
    seconds = _STEPS / rates
    firsts = []
    for column in prices.T:
        keys = objective_keys(CHEAPEST, column * seconds / 3600 * 1e9, seconds)
        firsts.append(int(np.lexsort(keys[::-1])[0]))
    return np.array(firsts)


def _hourly_cost(
    options: Options,
    rates: Floats,
    work: float,
    start: int,
    every_h: int,
    chooser: Chooser,
    model: str,
    quick: NDArray[np.int64] | None,
) -> float:
    def choice(hour: int) -> int:
        return int(quick[hour]) if quick is not None else chooser.choices(options, hour)[model]

    left, cost, hour = work, 0.0, start
    row = choice(hour)
    while True:
        span = every_h or options.offered.shape[1]
        end = min(hour + span, options.offered.shape[1])
        prices = options.offered[row, hour:end]
        needed = left / float(rates[row])
        if needed <= prices.size:
            whole = int(needed)
            return cost + float(prices[:whole].sum()) + (needed - whole) * float(prices[min(whole, prices.size - 1)])
        if end == options.offered.shape[1]:
            return np.nan  # a series ends inside its window
        cost += float(prices.sum())
        left -= prices.size * float(rates[row])
        hour = end
        row = choice(hour)


def winners(data: PaperData, series: Sequence[Series], day_ms: int, objective: Objective) -> dict[str, int]:
    """The number of the 26 job types for which each GPU is best under an objective, at one day's prices."""
    options = _daily(series, [day_ms // DAY_MS])
    models = sorted(data.steps_per_s)
    choices = Chooser(data, models, objective).choices(options, 0)
    counts: dict[str, int] = {}
    for row in choices.values():
        gpu = options.series[row].gpu
        counts[gpu] = counts.get(gpu, 0) + 1
    return counts
