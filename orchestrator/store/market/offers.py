"""Offers in the store, as listed by their sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from types import NoneType
from typing import Any

from sqlalchemy import Row, bindparam, select, update

from orchestrator.errors import NotFoundError, UnreadableRowError
from orchestrator.store.market.changes import OFFERS, ChangeRows
from orchestrator.store.rows import checked, decoded, quickly, values_of
from orchestrator.store.schema import offer
from orchestrator.store.transaction import columns, insert_into
from providers.hardware import GPUS
from providers.offer import CapacityType, Offer, provider_of

_BATCH = 1000  # values in one IN (...): below the parameter limit of every database
_FEW = 2000

_SHAPES = frozenset((str, str, str, str, gpu, int, int, int, str, bool) for gpu in (str, NoneType))  # of an Offer's row
_NAMES = [field.name for field in fields(Offer)]
_OFFER = [offer.c[name] for name in _NAMES]
_OFFERS = select(*_OFFER).where(offer.c.listed).order_by(offer.c.id)
_OFFERS_OF = _OFFERS.where(offer.c.provider.in_(bindparam("names", expanding=True)))
_ONE_OFFER = select(*_OFFER).where(offer.c.id == bindparam("name"))
_OFFERS_NAMED = select(*_OFFER).where(offer.c.id.in_(bindparam("ids", expanding=True)))
_LISTED_AMONG = select(offer.c.id).where(offer.c.listed, offer.c.id.in_(bindparam("ids", expanding=True)))
_KINDS = select(offer.c.gpu, offer.c.gpu_count).where(offer.c.listed).distinct()
_STORED = select(*_OFFER, offer.c.id, offer.c.listed, offer.c.source)
_OF_SOURCE = _STORED.where(offer.c.source == bindparam("name"))
_OF_REGION = _OF_SOURCE.where(offer.c.region == bindparam("place"))
_LISTED_BY = select(offer.c.id).where(offer.c.listed, offer.c.source == bindparam("name"))
_LISTED_IN = _LISTED_BY.where(offer.c.region == bindparam("place"))
_SOURCES_OF = select(offer.c.id, offer.c.source).where(offer.c.listed)
_BY_ID = _STORED.where(offer.c.id.in_(bindparam("ids", expanding=True)))
_KEYS_OF_PROVIDERS = select(offer.c.id, offer.c.key).where(offer.c.provider.in_(bindparam("names", expanding=True)))
_KEYS = select(offer.c.id, offer.c.key).where(offer.c.id.in_(bindparam("ids", expanding=True)))


class OfferRows(ChangeRows):
    """Reads and writes offers."""

    def put_offers(
        self,
        provider: str,
        offers: Sequence[Offer],
        *,
        source: str | None = None,
        region: str = "",
        whole: bool = True,
    ) -> None:
        """Stores the offers that `source` (default: the provider itself) lists now in `region` ('': in all).

        Offers that are missing in the list become unlisted but keep their prices; with `whole` False the list may be
        incomplete and none becomes unlisted.
        """
        name = provider if source is None else source
        rows = self._connection.execute(_OF_REGION if region else _OF_SOURCE, {"name": name, "place": region})
        named_before = {row.id: dict(row._mapping) for row in rows}
        elsewhere = {each.id for each in offers} - named_before.keys()
        known = dict(named_before)
        for batch in batches(elsewhere):
            known.update((row.id, dict(row._mapping)) for row in self._connection.execute(_BY_ID, {"ids": batch}))
        new, differ = {}, 0
        for each in offers:
            named_before.pop(each.id, None)
            before = known.get(each.id)
            values = columns(each) | {"id": each.id, "listed": True, "source": name}
            if before is None:
                new[each.id] = values
            elif before != values:
                self._connection.execute(update(offer).where(offer.c.id == each.id).values(values))
                differ += 1
        if new:
            self._connection.execute(insert_into(offer), list(new.values()))
        for gone, values in named_before.items() if whole else ():
            if values["listed"]:
                self._connection.execute(update(offer).where(offer.c.id == gone).values(listed=False))
                differ += 1
        if new or differ:
            self._changed(OFFERS)

    def add_past_offers(self, source: str, offers: Sequence[Offer]) -> int:
        """Stores past offers as unlisted. A known offer is only changed if its GPU was unknown. Returns the number of
        new and changed offers."""
        known: dict[str, Any] = {}
        for batch in batches({each.id for each in offers}):
            known.update((row.id, row) for row in self._connection.execute(_BY_ID, {"ids": batch}).all())
        new = {}
        learned = 0
        for each in offers:
            before = known.get(each.id)
            values = columns(each) | {"id": each.id, "listed": False, "source": source}
            if before is None:
                new[each.id] = values
            elif not before.listed and before.gpu is None and each.gpu is not None:
                self._connection.execute(update(offer).where(offer.c.id == each.id).values(values))
                learned += 1
        if new:
            self._connection.execute(insert_into(offer), list(new.values()))
        if new or learned:
            self._changed(OFFERS)
        return len(new) + learned

    def offers(self, providers: Collection[str] | None = None) -> list[Offer]:
        """All listed offers, or those of these providers, by id."""
        query, asked = (_OFFERS, {}) if providers is None else (_OFFERS_OF, {"names": sorted(providers)})
        return _offers(self._connection.execute(query, asked).all())

    def offer(self, offer_id: str) -> Offer | None:
        """An offer, listed or not; None if it is unknown."""
        return next(iter(_offers(self._connection.execute(_ONE_OFFER, {"name": offer_id}).all())), None)

    def offers_of(self, offer_ids: Collection[str]) -> dict[str, Offer]:
        """The offers with these ids, listed or not, by id; unknown ids are left out."""
        rows = [row for ids in batches(offer_ids) for row in self._connection.execute(_OFFERS_NAMED, {"ids": ids})]
        return {each.id: each for each in _offers(rows)}

    def listed_among(self, offer_ids: Collection[str]) -> frozenset[str]:
        """Those of these offers that are listed now."""
        found = (self._connection.execute(_LISTED_AMONG, {"ids": ids}).scalars() for ids in batches(offer_ids))
        return frozenset(values_of(offer.c.id, (each for ids in found for each in ids), str))

    def kinds_listed(self) -> list[tuple[str | None, int]]:
        """The distinct (GPU, GPU count) of all listed offers."""
        rows = self._connection.execute(_KINDS).all()
        for gpu, count in rows:
            if (reason := _wrong_kind(gpu, count)) is not None:
                raise UnreadableRowError("offer", "row", reason)
        return [(gpu, count) for gpu, count in rows]

    def listed_by(self, source: str, region: str = "") -> frozenset[str]:
        """Ids of the offers that `source` currently lists in `region` ('': in all)."""
        query, asked = (_LISTED_IN, {"name": source, "place": region}) if region else (_LISTED_BY, {"name": source})
        return frozenset(values_of(offer.c.id, self._connection.execute(query, asked).scalars(), str))

    def sources(self) -> dict[str, str]:
        """The source of each listed offer, by offer id."""
        return dict(checked("offer", self._connection.execute(_SOURCES_OF), (str, str)))

    def find_offers(
        self,
        *,
        offer_id: str | None = None,
        gpus: Collection[str] = (),
        provider: str | None = None,
        region: str | None = None,
        spot: bool | None = None,
    ) -> list[Offer]:
        """All matching offers, listed or not, by id; `gpus`: any of these kinds, empty: all."""
        query = select(*_OFFER).order_by(offer.c.id)
        for column, value in (
            (offer.c.id, offer_id),
            (offer.c.provider, provider),
            (offer.c.region, region),
        ):
            if value is not None:
                query = query.where(column == value)
        if gpus:
            query = query.where(offer.c.gpu.in_(sorted(gpus)))
        if spot is not None:
            query = query.where(offer.c.capacity_type == (CapacityType.SPOT if spot else CapacityType.ON_DEMAND).value)
        return _offers(self._connection.execute(query).all())

    def _offer_keys(self, ids: Iterable[str], *, strict: bool = True) -> dict[str, int]:
        """The keys of offers. Raises NotFoundError for an unknown one if `strict`."""
        wanted = set(ids)
        if len(wanted) > _FEW:  # reading all offers of the providers is faster than single look-ups
            names = sorted({provider_of(each) for each in wanted})
            rows = self._connection.execute(_KEYS_OF_PROVIDERS, {"names": names}).all()
        else:
            rows = [row for ids in batches(wanted) for row in self._connection.execute(_KEYS, {"ids": ids})]
        keys = {name: key for name, key in checked("offer", rows, (str, int)) if name in wanted}
        if strict and (unknown := wanted - keys.keys()):
            raise NotFoundError(f"the store knows no offer {min(unknown)}", hint="put_offers comes first")
        return keys


def batches(values: Iterable[str]) -> Iterable[list[str]]:
    """The values in order, in batches that fit into one statement."""
    remaining = iter(sorted(values))
    while batch := list(islice(remaining, _BATCH)):
        yield batch


def _offers(rows: Sequence[Row[Any]]) -> list[Offer]:
    return quickly(rows, _SHAPES, _offer, lambda row: offer_of(row._mapping))


def _offer(
    provider: str,
    region: str,
    zone: str,
    instance_type: str,
    gpu: str | None,
    gpu_count: int,
    vcpu: int,
    memory_bytes: int,
    capacity: str,
    simulated: bool,
) -> Offer:
    """Raises ValueError."""
    bought = CapacityType(capacity)
    found = Offer(provider, region, zone, instance_type, gpu, gpu_count, vcpu, memory_bytes, bought, simulated)
    if (reason := _wrong(found)) is not None:
        raise ValueError(reason)
    return found


def offer_of(row: Mapping[Any, Any]) -> Offer:
    """The Offer in a row, which may have more columns. Raises UnreadableRowError."""
    found = decoded(Offer, "offer", {name: row[name] for name in _NAMES}, row.get("id"))
    if (reason := _wrong(found)) is not None:
        raise UnreadableRowError("offer", row.get("id", found.id), reason)
    return found


def _wrong(found: Offer) -> str | None:
    """The value that no offer can have, or None."""
    provider, machine = found.provider, found.instance_type
    if not (provider and machine) or "/" in provider or "/" in machine or "/" in found.region or "/" in found.zone:
        return f"its parts do not form a valid offer id: {found.id!r}"
    if found.vcpu < 0 or found.memory_bytes < 0:
        return f"vcpu: {found.vcpu}, memory_bytes: {found.memory_bytes}"
    return _wrong_kind(found.gpu, found.gpu_count)


def _wrong_kind(gpu: object, count: object) -> str | None:
    if gpu is not None and gpu not in GPUS:
        return f"gpu: {gpu!r} is not a known GPU"
    if type(count) is not int or count < 0:
        return f"gpu_count: {count!r}"
    return None
