"""The market of one kind of GPU: prices per GPU hour, per TFLOP hour or per 1,000 steps of a job; now, over time, by
zone.

Long histories are reduced to the lowest and the highest price in each of BUCKETS parts, so that no peak is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from orchestrator.engine.inputs import snapshot
from orchestrator.errors import UsageError
from orchestrator.formats.csv_cells import table
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.reports.periods import DAY_MS, bounds
from orchestrator.services.prices.history import gpu_kinds
from orchestrator.store import Interval, Tx
from providers.hardware import GPUS
from providers.offer import Offer, OfferId, short_zone

Unit = Literal["gpu", "tflop", "steps"]
UNITS: Mapping[Unit, str] = {"gpu": "GPU-h", "tflop": "TFLOP-h", "steps": "1k steps"}
BUCKETS = 270
DRAWN = 5
MOST_DRAWN = 8
ROWS = 60
HEAT_ROWS = 24
HEAT_DAYS = 30
CPU = "no GPU"


@dataclass(frozen=True, slots=True)
class MarketRow:
    """An offer now: its price in nano-USD per machine hour and per unit (`value`), when and by which source it was last
    confirmed, and why it must not be chosen, if so."""

    offer_id: str
    gpu: str | None
    gpu_count: int
    spot: bool
    nano_usd_per_hour: int
    value: float
    effective_at_ms: int
    age_s: float | None
    source: str
    flag: str
    simulated: bool
    steps_per_s: float | None


@dataclass(frozen=True, slots=True)
class MarketSeries:
    """The price of an offer over time: (time, nano-USD per unit), thinned, to the end of the period."""

    offer_id: str
    points: tuple[tuple[int, float], ...]
    whole: int  # number of price changes before thinning


@dataclass(frozen=True, slots=True)
class Spread:
    """The lowest price of a cloud in nano-USD per unit, on spot and on demand, and the zones of both."""

    cloud: str
    spot: float | None
    spot_offer_id: str | None
    on_demand: float | None
    on_demand_offer_id: str | None


@dataclass(frozen=True, slots=True)
class Heat:
    """Mean spot prices by zone (rows) and UTC day (columns), in nano-USD per unit; None: unknown."""

    days: tuple[int, ...]
    zones: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class CheapestZone:
    """A zone that had the lowest mean spot price on consecutive UTC days (the first and the last begin at these times),
    and the lowest and the highest of these means, in nano-USD per unit."""

    zone: str
    first_ms: int
    last_ms: int
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class MarketView:
    """The market of `gpu`. `kinds` are the kinds of GPU that are listed, `count` the number of matching
    offers; `rows` has at most ROWS of them unless all were requested.
    `cheapest` are the cheapest zones of `heat`, in order of time."""

    kind: ClassVar[str] = "market"

    at_ms: int
    from_ms: int
    gpu: str
    kinds: tuple[str, ...]
    unit: Unit
    job_id: str | None
    job_name: str | None
    rows: tuple[MarketRow, ...]
    count: int
    series: tuple[MarketSeries, ...]
    spread: tuple[Spread, ...]
    heat: Heat
    cheapest: tuple[CheapestZone, ...]
    simulated: bool


def market(
    installation: Installation,
    gpu: str | None = None,
    *,
    unit: Unit = "gpu",
    job: str | None = None,
    cloud: str | None = None,
    spot: bool | None = None,
    offers: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
    every: bool = False,
) -> MarketView:
    """The market of a kind of GPU (None: the one with the most offers) between two times (`periods.bounds`). Raises
    UsageError, NotFoundError."""
    if unit not in UNITS:
        raise UsageError(f"{unit!r:.40} is not a unit of prices", hint=f"one of {', '.join(UNITS)}")
    now = installation.clock.now_ms()
    start, end = bounds(now, since, until)
    if start >= now:
        raise UsageError("the period has not begun yet", hint="begin earlier, for example --since 30d")
    end = min(now, end)
    if unit == "steps" and job is None:
        raise UsageError("a price per 1,000 steps needs a job", hint="name it with job=")
    with installation.store.read() as tx:
        counts = tx.kinds_listed()
        kinds = tuple(sorted({name or CPU for name, _ in counts}))
        chosen = gpu or _most(tx, kinds)
        found = _offers(tx, chosen, cloud, spot) if chosen else []
        of = tx.find_job(job) if job is not None else None
        rates = {} if of is None else _speeds(tx, of, found, now)
        rows = _rows(tx, found, now, unit, rates)
        drawn = [each for each in offers if any(row.offer_id == each for row in rows)][:MOST_DRAWN]
        drawn = drawn or _first_of_zones(rows)
        by_id = {each.id: each for each in found}
        series = _series(tx, [by_id[name] for name in drawn], start, end, unit, rates)
        heat = _heat(tx, [by_id[row.offer_id] for row in rows if row.spot], end, unit, rates)
    return MarketView(
        at_ms=now,
        from_ms=start,
        gpu=chosen,
        kinds=kinds,
        unit=unit,
        job_id=None if of is None else of.id,
        job_name=None if of is None else of.name,
        rows=tuple(rows if every else rows[:ROWS]),
        count=len(rows),
        series=series,
        spread=_spread(rows),
        heat=heat,
        cheapest=cheapest_zones(heat),
        simulated=any(row.simulated for row in rows),
    )


def lowest(heat: Heat) -> list[tuple[int, str, float]]:
    """(day, zone, mean spot price) of the cheapest zone of each day with prices."""
    found = []
    for column, day in enumerate(heat.days):
        known = [(row[column], zone) for zone, row in zip(heat.zones, heat.values, strict=True)]
        prices = [(value, zone) for value, zone in known if value is not None]
        if prices:
            value, zone = min(prices)
            found.append((day, zone, value))
    return found


def cheapest_zones(heat: Heat) -> tuple[CheapestZone, ...]:
    """The cheapest zones, in order of time."""
    made: list[CheapestZone] = []
    for day, zone, value in lowest(heat):
        last = made[-1] if made else None
        if last is not None and last.zone == zone:
            made[-1] = replace(last, last_ms=day, lowest=min(last.lowest, value), highest=max(last.highest, value))
        else:
            made.append(CheapestZone(zone, day, day, value, value))
    return tuple(made)


def market_csv(view: MarketView) -> str:
    """CSV with a row per offer, in exact nano-USD per hour and in nano-USD per unit."""
    columns = (
        "offer_id",
        "gpu",
        "gpu_count",
        "nano_usd_per_hour",
        f"nano_usd_per_{view.unit}",
        "age_s",
        "source",
        "flag",
    )
    rows = (
        (
            each.offer_id,
            each.gpu,
            each.gpu_count,
            each.nano_usd_per_hour,
            each.value,
            each.age_s,
            each.source,
            each.flag,
        )
        for each in view.rows
    )
    return table(columns, rows)


def _most(tx: Tx, kinds: Sequence[str]) -> str:
    named = [each for each in kinds if each != CPU]
    sizes = {each: len(tx.find_offers(gpus=(each,))) for each in named[:40]}
    return max(sizes, key=lambda each: (sizes[each], each)) if sizes else (kinds[0] if kinds else "")


def _offers(tx: Tx, gpu: str, cloud: str | None, spot: bool | None) -> list[Offer]:
    if gpu == CPU:
        return [each for each in tx.find_offers(provider=cloud, spot=spot) if each.gpu is None]
    return tx.find_offers(gpus=gpu_kinds(gpu), provider=cloud, spot=spot)


def _speeds(tx: Tx, job: Job, offers: Sequence[Offer], now_ms: int) -> dict[tuple[str | None, int], float]:
    book = snapshot.perf(tx, now_ms, [job.id])
    kinds = sorted({(each.gpu, each.gpu_count) for each in offers}, key=str)
    return {kind: book.estimate_kind(job, *kind).value for kind in kinds if book.evidence(job, [kind]) != "none"}


def _per_unit(
    offer: Offer, nano_usd_per_hour: int, unit: Unit, rates: Mapping[tuple[str | None, int], float]
) -> float | None:
    if unit == "steps":
        rate = rates.get((offer.gpu, offer.gpu_count))
        return None if not rate else nano_usd_per_hour / 3600 / rate * 1000
    per_gpu = nano_usd_per_hour / max(1, offer.gpu_count)
    if unit == "gpu" or offer.gpu is None:
        return per_gpu
    return per_gpu / (GPUS[offer.gpu].fp16_flops / 1e12)


def _rows(
    tx: Tx, offers: Sequence[Offer], now_ms: int, unit: Unit, rates: Mapping[tuple[str | None, int], float]
) -> list[MarketRow]:
    listed = tx.listed_among([each.id for each in offers])
    prices = {each.offer_id: each for each in tx.payable_as_of(now_ms, [each.id for each in offers])}
    heard = {(each.provider, each.region, each.spot): each.until_ms for each in tx.polled()}
    flags = tx.flagged_as_of(now_ms)
    rows = []
    for each in offers:
        point = prices.get(each.id)
        value = None if point is None else _per_unit(each, point.nano_usd_per_hour, unit, rates)
        if point is None or value is None or each.id not in listed:
            continue
        until = heard.get((each.provider, each.region, each.spot))
        rows.append(
            MarketRow(
                each.id,
                each.gpu,
                each.gpu_count,
                each.spot,
                point.nano_usd_per_hour,
                value,
                point.effective_at_ms,
                None if until is None else max(0, now_ms - until) / 1000,
                point.source,
                flags.get(each.id, ""),
                each.simulated,
                rates.get((each.gpu, each.gpu_count)),
            )
        )
    return sorted(rows, key=lambda row: (row.value, row.offer_id))


def _first_of_zones(rows: Sequence[MarketRow]) -> list[str]:
    zones: dict[str, str] = {}
    for row in rows:
        if row.spot:
            zones.setdefault(short_zone(row.offer_id), row.offer_id)
    return list(zones.values())[:DRAWN] or [row.offer_id for row in rows[:DRAWN]]


def _series(
    tx: Tx,
    offers: Sequence[Offer],
    start_ms: int,
    end_ms: int,
    unit: Unit,
    rates: Mapping[tuple[str | None, int], float],
) -> tuple[MarketSeries, ...]:
    found = tx.price_series([Interval(each.id, start_ms, end_ms) for each in offers], BUCKETS)
    made = []
    for offer, (changes, whole) in zip(offers, found, strict=True):
        points = [(max(at, start_ms), _per_unit(offer, price, unit, rates) or 0.0) for at, price in changes]
        if points:
            points.append((end_ms, points[-1][1]))
        made.append(MarketSeries(offer.id, tuple(points), whole))
    return tuple(made)


def _spread(rows: Sequence[MarketRow]) -> tuple[Spread, ...]:
    lowest: dict[tuple[str, bool], MarketRow] = {}
    for row in rows:
        lowest.setdefault((OfferId.parse(row.offer_id).provider, row.spot), row)
    clouds = sorted({cloud for cloud, _ in lowest})
    made = []
    for cloud in clouds:
        spot, demand = lowest.get((cloud, True)), lowest.get((cloud, False))
        made.append(
            Spread(
                cloud,
                None if spot is None else spot.value,
                None if spot is None else spot.offer_id,
                None if demand is None else demand.value,
                None if demand is None else demand.offer_id,
            )
        )
    return tuple(sorted(made, key=lambda each: min(v for v in (each.spot, each.on_demand) if v is not None)))


def _heat(
    tx: Tx, offers: Sequence[Offer], end_ms: int, unit: Unit, rates: Mapping[tuple[str | None, int], float]
) -> Heat:
    last = end_ms // DAY_MS
    days = tuple(day * DAY_MS for day in range(last - HEAT_DAYS, last))
    zones: dict[str, Offer] = {}
    for each in offers:
        zones.setdefault(short_zone(each.id), each)
    names = list(zones)[:HEAT_ROWS]
    values = []
    for name in names:
        offer = zones[name]
        known = {each.start_ms: each.mean for each in tx.price_days(offer.id, days[0], days[-1] + DAY_MS)}
        values.append(tuple(None if day not in known else _per_unit(offer, known[day], unit, rates) for day in days))
    return Heat(days, tuple(names), tuple(values))
