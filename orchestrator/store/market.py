"""The market as it was learned: offers, price changes, polls, availability. Must not know jobs.

Only changes of a price are kept, and each poll on its own, so that "no change" and "no data" stay different facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Select, bindparam, select, update

from orchestrator.errors import NotFoundError
from orchestrator.store.schema import availability_point, offer, poll, price_point, price_source
from orchestrator.store.transaction import Transaction, columns, insert_into
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

_BATCH = 1000  # values in one IN (...): below the parameter limit of every database

_OFFER = [offer.c[field.name] for field in fields(Offer)]
_OFFERS = select(*_OFFER).where(offer.c.listed).order_by(offer.c.id)
_OFFERS_OF_PROVIDER = select(*_OFFER, offer.c.id, offer.c.listed).where(offer.c.provider == bindparam("name"))
_KEYS = select(offer.c.id, offer.c.key).where(offer.c.id.in_(bindparam("ids", expanding=True)))
_SOURCES = select(price_source.c.name, price_source.c.key).where(
    price_source.c.name.in_(bindparam("names", expanding=True))
)


@dataclass(frozen=True, slots=True)
class Poll:
    """One look at a provider's prices: how many offers it saw, how many prices had changed, or why it failed."""

    provider: str
    started_ms: int
    finished_ms: int
    offers_seen: int
    changed: int
    error: str | None


_POLLS = select(*(poll.c[field.name] for field in fields(Poll))).order_by(poll.c.seq.desc()).limit(bindparam("limit"))
_POLLS_OF_PROVIDER = _POLLS.where(poll.c.provider == bindparam("name"))
_LAST_GOOD_POLL = (
    select(poll.c.started_ms)
    .where(poll.c.provider == bindparam("name"), poll.c.error.is_(None))
    .order_by(poll.c.seq.desc())
    .limit(1)
)


class AvailabilityPoint(NamedTuple):
    """What was learned of an offer's capacity at an instant (`kind`: launched, refused, preempted, ...)."""

    offer_id: str
    at_ms: int
    kind: str


class MarketRows(Transaction):
    def put_offers(self, provider: str, offers: Sequence[Offer]) -> None:
        """These are all offers of `provider` now. Those no longer named stay known for their prices, but unlisted."""
        rows = self._connection.execute(_OFFERS_OF_PROVIDER, {"name": provider})
        known = {row.id: dict(row._mapping) for row in rows}
        new = []
        for each in offers:
            values = columns(each) | {"id": each.id, "listed": True}
            before = known.pop(each.id, None)
            if before is None:
                new.append(values)
            elif before != values:
                self._connection.execute(update(offer).where(offer.c.id == each.id).values(values))
        if new:
            self._connection.execute(insert_into(offer), new)
        for gone, values in known.items():
            if values["listed"]:
                self._connection.execute(update(offer).where(offer.c.id == gone).values(listed=False))

    def offers(self) -> list[Offer]:
        """Everything listed now, by id."""
        rows = self._connection.execute(_OFFERS)
        return [Offer(**{**row._mapping, "capacity_type": CapacityType(row.capacity_type)}) for row in rows]

    def add_prices(self, points: Iterable[PricePoint]) -> int:
        """Store what changed; returns how many points that were.

        A point is left out when its offer has one of the same `effective_at_ms` already, or when the one before it
        has the same price and was observed no later. So history that is learned late must come with every change up to
        the present, as ProvidesPriceHistory gives it. Raises NotFoundError for an offer that was never put.
        """
        ordered = sorted(points, key=lambda point: (point.effective_at_ms, point.observed_at_ms))
        offer_keys = self._offer_keys({point.offer_id for point in ordered})
        source_keys = self._source_keys({point.source for point in ordered})
        newest = {point.offer_id: point for point in self._newest(offer_keys)}
        fresh: list[dict[str, int]] = []
        late = 0
        for point in ordered:
            last = newest.get(point.offer_id)
            if last is not None and last.effective_at_ms == point.effective_at_ms:
                continue
            is_late = last is not None and last.effective_at_ms > point.effective_at_ms
            before = self._in_force(point.offer_id, point.effective_at_ms) if is_late else last
            if before is not None and _adds_nothing(before, point):
                continue
            row = {
                "offer_key": offer_keys[point.offer_id],
                "effective_at_ms": point.effective_at_ms,
                "observed_at_ms": point.observed_at_ms,
                "nano_usd_per_hour": point.nano_usd_per_hour,
                "source_key": source_keys[point.source],
            }
            if is_late:  # into the past: the points of this call that follow must find it there
                self._insert(price_point, **row)
                late += 1
            else:
                fresh.append(row)
                newest[point.offer_id] = point
        if fresh:
            self._connection.execute(insert_into(price_point), fresh)
        return len(fresh) + late

    def prices_as_of(self, at_ms: int) -> list[PricePoint]:
        """Per offer the newest price that was in force and known at `at_ms`; ordered by offer id."""
        return self._points(_KNOWN_AT, {"at_ms": at_ms})

    def price_changes(self, offer_id: str, start_ms: int, end_ms: int) -> list[tuple[int, int]]:
        """(effective_at_ms, nano_usd_per_hour) from the one in force at `start_ms` (if any is known) to those before
        `end_ms`, ascending: the argument of providers.money.cost_nano_usd."""
        first = self._in_force(offer_id, start_ms)
        between = {"offer_id": offer_id, "start_ms": start_ms, "end_ms": end_ms}
        rows = self._connection.execute(_CHANGES, between)
        in_force = [(first.effective_at_ms, first.nano_usd_per_hour)] if first else []
        return in_force + [(row.effective_at_ms, row.nano_usd_per_hour) for row in rows]

    def record_poll(
        self, provider: str, started_ms: int, finished_ms: int, offers_seen: int, changed: int, error: str | None
    ) -> None:
        """Remember that a provider was asked, whatever came of it."""
        self._insert(
            poll,
            provider=provider,
            started_ms=started_ms,
            finished_ms=finished_ms,
            offers_seen=offers_seen,
            changed=changed,
            error=error,
        )

    def polls(self, provider: str | None = None, limit: int = 20) -> list[Poll]:
        """The newest first."""
        query = _POLLS if provider is None else _POLLS_OF_PROVIDER
        return [Poll(*row) for row in self._connection.execute(query, {"name": provider, "limit": limit})]

    def last_good_poll_ms(self, provider: str) -> int | None:
        """When the newest poll of `provider` that succeeded was begun: up to then all its price changes are known."""
        return self._connection.execute(_LAST_GOOD_POLL, {"name": provider}).scalar_one_or_none()

    def add_availability(
        self, offer_id: str, at_ms: int, kind: str, run_id: str | None = None, detail: str = ""
    ) -> None:
        """Raises NotFoundError for an offer that was never put."""
        key = self._offer_keys({offer_id})[offer_id]
        self._insert(availability_point, offer_key=key, at_ms=at_ms, kind=kind, run_id=run_id, detail=detail)

    def availability(self, since_ms: int, until_ms: int) -> list[AvailabilityPoint]:
        """What was learned from `since_ms` to `until_ms`, both included, in that order."""
        rows = self._connection.execute(_AVAILABILITY, {"since_ms": since_ms, "until_ms": until_ms})
        return [AvailabilityPoint(*row) for row in rows]

    def _offer_keys(self, ids: set[str]) -> dict[str, int]:
        keys: dict[str, int] = {}
        for batch in _batches(ids):
            keys.update((row.id, row.key) for row in self._connection.execute(_KEYS, {"ids": batch}))
        if unknown := ids - keys.keys():
            raise NotFoundError(f"the store knows no offer {min(unknown)}", hint="put_offers comes first")
        return keys

    def _source_keys(self, names: set[str]) -> dict[str, int]:
        wanted = {"names": sorted(names)}
        known = {row.name: row.key for row in self._connection.execute(_SOURCES, wanted)}
        if known.keys() == names:
            return known
        for name in sorted(names - known.keys()):
            self._insert(price_source, name=name)
        return {row.name: row.key for row in self._connection.execute(_SOURCES, wanted)}

    def _newest(self, offer_ids: Iterable[str]) -> Iterable[PricePoint]:
        for batch in _batches(offer_ids):
            yield from self._points(_NEWEST, {"ids": batch})

    def _in_force(self, offer_id: str, at_ms: int) -> PricePoint | None:
        found = self._points(_IN_FORCE, {"offer_id": offer_id, "at_ms": at_ms})
        return found[0] if found else None

    def _points(self, query: Select[Any], values: dict[str, Any]) -> list[PricePoint]:
        return [PricePoint(*row) for row in self._connection.execute(query, values)]


_Point = price_point.alias("candidate").c


def _newest_point(*bounds: ColumnElement[bool]) -> Select[Any]:
    """Per offer the newest point within `bounds`: one walk down the index for each, never a scan of all prices."""
    newest = (
        select(_Point.effective_at_ms)
        .where(_Point.offer_key == offer.c.key, *bounds)
        .order_by(_Point.effective_at_ms.desc())
        .limit(1)
        .correlate(offer)
        .scalar_subquery()
    )
    return (
        select(
            offer.c.id.label("offer_id"),
            price_point.c.nano_usd_per_hour,
            price_point.c.effective_at_ms,
            price_point.c.observed_at_ms,
            price_source.c.name.label("source"),
        )
        .select_from(offer)
        .join(price_point, (price_point.c.offer_key == offer.c.key) & (price_point.c.effective_at_ms == newest))
        .join(price_source, price_source.c.key == price_point.c.source_key)
        .order_by(offer.c.id)
    )


_AT: BindParameter[int] = bindparam("at_ms")
_KNOWN_AT = _newest_point(_Point.effective_at_ms <= _AT, _Point.observed_at_ms <= _AT)
_NEWEST = _newest_point().where(offer.c.id.in_(bindparam("ids", expanding=True)))
_IN_FORCE = _newest_point(_Point.effective_at_ms <= _AT).where(offer.c.id == bindparam("offer_id"))
_CHANGES = (
    select(price_point.c.effective_at_ms, price_point.c.nano_usd_per_hour)
    .join(offer, offer.c.key == price_point.c.offer_key)
    .where(offer.c.id == bindparam("offer_id"))
    .where(price_point.c.effective_at_ms > bindparam("start_ms"), price_point.c.effective_at_ms < bindparam("end_ms"))
    .order_by(price_point.c.effective_at_ms)
)
_AVAILABILITY = (
    select(offer.c.id, availability_point.c.at_ms, availability_point.c.kind)
    .join(offer, offer.c.key == availability_point.c.offer_key)
    .where(availability_point.c.at_ms.between(bindparam("since_ms"), bindparam("until_ms")))
    .order_by(availability_point.c.at_ms, availability_point.c.seq)
)


def _adds_nothing(before: PricePoint, point: PricePoint) -> bool:
    """A repeated price is no change, unless the one before was learned later: in between, only `point` was known."""
    return before.effective_at_ms == point.effective_at_ms or (
        before.nano_usd_per_hour == point.nano_usd_per_hour and before.observed_at_ms <= point.observed_at_ms
    )


def _batches(values: Iterable[str]) -> Iterable[list[str]]:
    remaining = iter(sorted(values))
    while batch := list(islice(remaining, _BATCH)):
        yield batch
