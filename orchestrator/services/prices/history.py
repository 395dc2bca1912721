"""The price history of one offer, or of all matching offers, page by page."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.errors import NotFoundError, UsageError, did_you_mean, echoed
from orchestrator.formats.csv_cells import table
from orchestrator.formats.readable import day_meant, iso
from orchestrator.installation import Installation
from orchestrator.jobfile.units import BadValueError, parse_duration
from orchestrator.prices.views import PriceHistory, PriceSeries
from orchestrator.services.offers.ids import checked_offer_id
from orchestrator.services.paging import Cursors, checked_limit
from orchestrator.store import Interval, Tx
from providers.hardware import GPUS, gpus_named
from providers.money import NANO_USD
from providers.offer import Offer, provider_of
from providers.price import PricePoint


@dataclass(frozen=True, slots=True)
class PriceQuery:
    """The offers of a history: one with this id, or all that match. `gpu` is a kind of GPU, or a name that several
    kinds share, such as `A100`."""

    offer_id: str | None = None
    gpu: str | None = None
    provider: str | None = None
    region: str | None = None
    spot: bool | None = None

    def offers(self, tx: Tx) -> list[Offer]:
        """The offers, listed or not. Raises NotFoundError if there is none; UsageError for an invalid id or GPU, and
        for a query of all offers."""
        offer_id = None if self.offer_id is None else checked_offer_id(self.offer_id)
        if offer_id is None and self.gpu is None and self.provider is None:
            raise UsageError("this would select all offers", hint="name an offer, or use --gpu or --provider")
        found = tx.find_offers(
            offer_id=offer_id, gpus=gpu_kinds(self.gpu), provider=self.provider, region=self.region, spot=self.spot
        )
        if not found:
            raise _unknown(tx, offer_id)
        return found


@dataclass(frozen=True, slots=True, order=True)
class _Rank:
    """Sort position of a series in a history that ends at `to_ms`."""

    to_ms: int
    past: bool
    nano_usd_per_gpu_hour: float
    offer_id: str


_CURSORS = Cursors("price-history", _Rank)


def history(
    installation: Installation,
    query: PriceQuery,
    *,
    since: str = "30d",
    limit: int | None = 6,
    cursor: str | None = None,
) -> PriceHistory:
    """The price history of the offer of `query`, or of the `limit` matching offers that are cheapest per GPU at the
    end; offers that are available or changed in the period come first.

    Real and simulated markets have different clocks: if offers of both match, only the real ones are returned.

    `since` is a time as in `instant_of`. `cursor` continues a listing, as of the same time. Raises NotFoundError,
    UsageError.
    """
    most, filters = checked_limit(limit), {"query": query, "since": since}
    last = _CURSORS.read(cursor, filters)
    with installation.store.read() as tx:
        found = query.offers(tx)
        matching, found = found, [each for each in found if not each.simulated] or found
        if last is None:
            now = (installation.clock if found[0].simulated else installation.outside_clock).now_ms()
            ends = tx.price_points_of([Interval(each.id, now, now + 1) for each in found])
            in_force = {each.id: points[-1] for points, each in zip(ends, found, strict=True) if points}
        else:  # newer prices do not change the order
            now = last.to_ms
            in_force = {point.offer_id: point for point in tx.payable_as_of(now)}
        start = instant_of(since, now)
        listed = tx.listed_among([each.id for each in found])
        priced = [each for each in found if each.id in in_force]
        ranked = sorted(
            ((_rank(now, in_force[each.id], each, start, listed), each) for each in priced), key=lambda pair: pair[0]
        )
        to_come = ranked if last is None else [pair for pair in ranked if pair[0] > last]
        page = to_come[:most]
        chosen = [each for _, each in page]
        series = tuple(_series(tx, each, start, now, each.id in listed) for each in chosen)
    simulated = any(each.simulated for each in chosen)
    return PriceHistory(
        from_ms=start,
        to_ms=now,
        series=series,
        left_out=len(found) - len(chosen),
        simulated=simulated,
        other_market=len(matching) - len(found),
        next_cursor=_CURSORS.write(page[-1][0], filters) if len(page) < len(to_come) else None,
    )


def history_csv(view: PriceHistory) -> str:
    """A price history as CSV: one row per change, in exact USD per hour for the whole machine."""
    columns = ("offer_id", "gpu", "gpu_count", "effective_at", "observed_at", "price_per_hour")
    rows = (
        (
            series.offer_id,
            series.gpu,
            series.gpu_count,
            iso(effective_ms),
            iso(observed_ms),
            f"{price // NANO_USD}.{price % NANO_USD:09}",
        )
        for series in view.series
        for effective_ms, observed_ms, price in series.points
    )
    return table(columns, rows).rstrip("\n")


_TIMES = "write 30d, 12h, 2026-11-21 or 2026-11-21T13:00:00Z"
_FIRST_MS, _LAST_MS = (
    round(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000) for year, month, day in ((1, 1, 1), (9999, 12, 31))
)


def instant_of(text: str, now_ms: int) -> int:
    """The epoch ms of `30d` (that long ago), `2026-11-21` or `2026-11-21T13:00:00Z` (UTC by default).

    Raises UsageError.
    """
    try:
        at_ms = now_ms - round(parse_duration(text) * 1000)
    except BadValueError:
        try:
            at = datetime.fromisoformat(text.strip())
        except ValueError:
            meant = day_meant(text)
            raise UsageError(f"{echoed(text)} is not a time", hint=f"write {meant}" if meant else _TIMES) from None
        at_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    if not _FIRST_MS <= at_ms <= _LAST_MS:
        raise UsageError(f"{echoed(text)} is not in the years 1 to 9999 (UTC)", hint=_TIMES)
    return at_ms


def gpu_kinds(name: str | None) -> tuple[str, ...]:
    """The GPU kinds with this name; empty: all."""
    if name is None:
        return ()
    kinds = gpus_named(name)
    if not kinds:
        raise UsageError(f"unknown GPU {name}", hint=did_you_mean(name, GPUS) or "see: tradewind offers")
    return kinds


def _rank(now_ms: int, last: PricePoint, offer: Offer, start_ms: int, listed: Collection[str]) -> _Rank:
    """Offers that are available or changed since `start_ms` come first, then the cheapest per GPU."""
    past = offer.id not in listed and last.effective_at_ms < start_ms
    return _Rank(now_ms, past, last.nano_usd_per_hour / max(1, offer.gpu_count), offer.id)


def _series(tx: Tx, offer: Offer, start_ms: int, end_ms: int, listed: bool) -> PriceSeries:
    points = tx.price_points(offer.id, start_ms, end_ms + 1)
    return PriceSeries(
        offer_id=offer.id,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        listed=listed,
        known_to_ms=tx.priced_to_ms(offer.id),
        points=tuple((each.effective_at_ms, each.observed_at_ms, each.nano_usd_per_hour) for each in points),
        flags=tuple(flag for flag in tx.flags_of(offer.id) if flag.cleared_ms is None or flag.cleared_ms >= start_ms),
    )


def _unknown(tx: Tx, offer_id: str | None) -> NotFoundError:
    if offer_id is None:
        return NotFoundError("no offer matches", hint="see: tradewind prices status")
    ids = [offer.id for offer in tx.find_offers(provider=provider_of(offer_id))]
    return NotFoundError(f"unknown offer {offer_id}", hint=did_you_mean(offer_id, ids) or "see: tradewind offers")
