"""Flags: reported rows whose offers must not be chosen, with reason and time. And interruption risks from providers.

A flag is open from the report that caused it until a report in which its offer is valid again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, case, func, select, union_all, update

from orchestrator.store.market.offers import OfferRows, batches
from orchestrator.store.rows import checked, decoded, record
from orchestrator.store.schema import FLAG_CLEARED, FLAG_OPEN, offer, price_flag, risk_point
from orchestrator.store.transaction import insert_into
from providers.collect.facts import Signal


@dataclass(frozen=True, slots=True)
class NewFlag:
    """A flag to store. `subject` is the offer's id, or otherwise describes the row; price and time are None if
    unreadable.

    `unconfirmed`: the price awaits a second report; until then nothing is booked from its time on.
    """

    flag: str
    subject: str
    detail: str
    offer_id: str | None = None
    nano_usd_per_hour: int | None = None
    effective_at_ms: int | None = None
    unconfirmed: bool = False


@dataclass(frozen=True, slots=True)
class StoredFlag:
    """A stored flag; it is open while `cleared_ms` is None."""

    source: str
    region: str
    flag: str
    subject: str
    nano_usd_per_hour: int | None
    effective_at_ms: int | None
    opened_ms: int
    seen_ms: int
    cleared_ms: int | None
    detail: str
    unconfirmed: bool


_FLAG_ROW = [price_flag.c[field.name] for field in fields(StoredFlag)]
_FLAGS = select(*_FLAG_ROW).order_by(price_flag.c.seq.desc()).limit(bindparam("limit"))
_OPEN_FLAGS = _FLAGS.where(price_flag.c.cleared_ms.is_(None))
_FLAGS_OF = (
    select(*_FLAG_ROW)
    .join(offer, offer.c.key == price_flag.c.offer_key)
    .where(offer.c.id == bindparam("name"))
    .order_by(price_flag.c.opened_ms, price_flag.c.seq)
)
_OPEN_OF_KIND = _OPEN_FLAGS.where(price_flag.c.flag == bindparam("kind"))
_OPEN_OF_OFFER = (
    select(*_FLAG_ROW, price_flag.c.seq)
    .join(offer, offer.c.key == price_flag.c.offer_key)
    .where(price_flag.c.cleared_ms.is_(None), offer.c.id == bindparam("name"))
    .where(price_flag.c.flag.in_(bindparam("kinds", expanding=True)))
    .order_by(price_flag.c.seq)
)
_OPENED_BY = (
    select(price_flag.c.seq, offer.c.id, price_flag.c.detail)
    .join(price_flag, price_flag.c.offer_key == offer.c.key)
    .where(price_flag.c.opened_ms <= bindparam("at_ms"))
)
_FLAGGED_AT = union_all(  # each half uses an index, because nearly all flags are cleared
    _OPENED_BY.where(FLAG_OPEN), _OPENED_BY.where(FLAG_CLEARED, price_flag.c.cleared_ms > bindparam("at_ms"))
).order_by("seq")
_COUNTS = (
    select(price_flag.c.source, price_flag.c.region, price_flag.c.flag, func.count())
    .where(price_flag.c.cleared_ms.is_(None))
    .group_by(price_flag.c.source, price_flag.c.region, price_flag.c.flag)
    .order_by(price_flag.c.source, price_flag.c.region, price_flag.c.flag)
)
_OPEN_HERE = (
    select(price_flag, (offer.c.listed & (offer.c.source != price_flag.c.source)).label("reported_by_another"))
    .outerjoin(offer, offer.c.key == price_flag.c.offer_key)
    .where(
        price_flag.c.cleared_ms.is_(None),
        price_flag.c.source == bindparam("of_source"),
        price_flag.c.region == bindparam("of_region"),
    )
)
_SEEN = (
    update(price_flag)
    .where(price_flag.c.seq == bindparam("number"))
    .values(
        seen_ms=bindparam("at_ms"),
        opened_ms=case((price_flag.c.opened_ms > bindparam("at_ms"), bindparam("at_ms")), else_=price_flag.c.opened_ms),
    )
)
_CLEAR = update(price_flag).where(price_flag.c.seq == bindparam("number")).values(cleared_ms=bindparam("at_ms"))
_OPEN_OF = (
    select(price_flag.c.seq)
    .join(offer, offer.c.key == price_flag.c.offer_key)
    .where(price_flag.c.cleared_ms.is_(None), offer.c.id.in_(bindparam("ids", expanding=True)))
)
_RECORDED = select(price_flag.c.offer_key, price_flag.c.flag, price_flag.c.subject, price_flag.c.effective_at_ms).where(
    price_flag.c.source == bindparam("of_source")
)

_RISK_SEQ = select(func.max(risk_point.c.seq))
_RISK = [risk_point.c[field.name] for field in fields(Signal)]
_SAME_PLACE = ("kind", "provider", "region", "zone", "instance_type")
_LAST_RISK = (
    select(risk_point.c.low, risk_point.c.high, risk_point.c.effective_at_ms)
    .where(*(risk_point.c[name] == bindparam(name) for name in _SAME_PLACE))
    .order_by(risk_point.c.effective_at_ms.desc(), risk_point.c.seq.desc())
    .limit(1)
)
_NEWEST_RISKS = (
    select(func.max(risk_point.c.seq))
    .where(risk_point.c.observed_at_ms <= bindparam("at_ms"))
    .group_by(*(risk_point.c[name] for name in _SAME_PLACE))
)
_RISKS = (
    select(*_RISK).where(risk_point.c.seq.in_(_NEWEST_RISKS)).order_by(*(risk_point.c[name] for name in _SAME_PLACE))
)
_NEXT_RISK = select(func.min(risk_point.c.observed_at_ms)).where(risk_point.c.observed_at_ms > bindparam("at_ms"))


class FlagRows(OfferRows):
    """Reads and writes flags and risks."""

    def put_flags(
        self,
        source: str,
        region: str,
        at_ms: int,
        flagged: Sequence[NewFlag],
        *,
        sound: Collection[str] = (),
        whole: bool = True,
    ) -> None:
        """Stores the flags of a poll at `at_ms`, and clears those of the offers in `sound`, which were valid.

        A row with the same price is the same flag, even if its source reports the poll's time as the price's (a table
        without times). With `whole`, flags of `source` in `region` that were not reported again are cleared, too,
        except for offers that another source reports. Raises NotFoundError for an unknown offer.
        """
        keys = self._offer_keys({each.offer_id for each in flagged if each.offer_id is not None})
        open_here = self._connection.execute(_OPEN_HERE, {"of_source": source, "of_region": region}).all()
        before = {(row.subject, row.flag, row.nano_usd_per_hour): row.seq for row in open_here}
        now = {(each.subject, each.flag, each.nano_usd_per_hour): each for each in flagged}
        subjects = {each.subject for each in flagged}
        still = [before[key] for key in now.keys() & before.keys()]
        ended = {
            row.seq
            for row in open_here
            if row.seq not in still and (row.subject in subjects or (whole and not row.reported_by_another))
        }
        for batch in batches(set(sound) - {each.offer_id for each in flagged}):
            ended.update(row.seq for row in self._connection.execute(_OPEN_OF, {"ids": batch}))
        if still:
            self._connection.execute(_SEEN, [{"number": seq, "at_ms": at_ms} for seq in sorted(still)])
        if ended:
            self._connection.execute(_CLEAR, [{"number": seq, "at_ms": at_ms} for seq in sorted(ended)])
        rows = [
            self._flag_row(source, region, each, keys, (at_ms, at_ms, None))
            for key, each in now.items()
            if key not in before
        ]
        if rows:
            self._connection.execute(insert_into(price_flag), rows)

    def add_past_flags(self, source: str, flagged: Sequence[tuple[NewFlag, str, int, int | None]]) -> int:
        """Stores flags of a recorded history: (flag, region, opened, cleared), times in ms.

        Flags that `source` already reported are skipped. Returns the number of new ones.
        """
        if not flagged:
            return 0
        keys = self._offer_keys({each.offer_id for each, *_ in flagged if each.offer_id is not None})
        known = {tuple(row) for row in self._connection.execute(_RECORDED, {"of_source": source})}
        fresh = []
        for each, region, opened_ms, cleared_ms in flagged:
            identity = (keys.get(each.offer_id or ""), each.flag, each.subject, each.effective_at_ms)
            if identity not in known:
                known.add(identity)
                fresh.append(self._flag_row(source, region, each, keys, (opened_ms, opened_ms, cleared_ms)))
        if fresh:
            self._connection.execute(insert_into(price_flag), fresh)
        return len(fresh)

    def flags(self, *, open: bool = True, limit: int = 100) -> list[StoredFlag]:
        """The latest flags, newest first; only open ones by default."""
        rows = self._connection.execute(_OPEN_FLAGS if open else _FLAGS, {"limit": limit}).all()
        return [record(StoredFlag, "price_flag", row) for row in rows]

    def open_flags(self, flag: str, *, limit: int) -> list[StoredFlag]:
        """The open flags of one kind, newest first."""
        rows = self._connection.execute(_OPEN_OF_KIND, {"kind": flag, "limit": limit}).all()
        return [record(StoredFlag, "price_flag", row) for row in rows]

    def clear_flags(self, offer_id: str, kinds: Collection[str], at_ms: int) -> list[StoredFlag]:
        """Clears an offer's open flags of these kinds; returns them as they were, newest last."""
        asked = {"name": offer_id, "kinds": sorted(kinds)}
        rows = self._connection.execute(_OPEN_OF_OFFER, asked).all()
        if rows:
            self._connection.execute(_CLEAR, [{"number": row.seq, "at_ms": at_ms} for row in rows])
        names = [field.name for field in fields(StoredFlag)]
        return [
            decoded(StoredFlag, "price_flag", {name: row._mapping[name] for name in names}, row.seq) for row in rows
        ]

    def flagged_as_of(self, at_ms: int) -> dict[str, str]:
        """The flagged offers at `at_ms`, with the newest reason, by offer id."""
        rows = checked("price_flag", self._connection.execute(_FLAGGED_AT, {"at_ms": at_ms}), (int, str, str))
        return {name: detail for _, name, detail in rows}

    def flags_of(self, offer_id: str) -> list[StoredFlag]:
        """All flags of an offer, cleared ones included, by time."""
        return [
            record(StoredFlag, "price_flag", row)
            for row in self._connection.execute(_FLAGS_OF, {"name": offer_id}).all()
        ]

    def flag_counts(self) -> dict[tuple[str, str], dict[str, int]]:
        """Open flags by (source, region) and kind."""
        counts: dict[tuple[str, str], dict[str, int]] = {}
        for source, region, flag, number in self._connection.execute(_COUNTS):
            counts.setdefault((source, region), {})[flag] = number
        return counts

    def add_risks(self, risks: Sequence[Signal]) -> int:
        """Stores changed risks; returns their number."""
        fresh = []
        newest: dict[tuple[str, ...], tuple[float, float, int]] = {}
        for each in sorted(risks, key=lambda risk: risk.effective_at_ms):
            values = {field.name: getattr(each, field.name) for field in fields(Signal)}
            place = tuple(values[name] for name in _SAME_PLACE)
            if place not in newest:
                found = self._connection.execute(_LAST_RISK, {name: values[name] for name in _SAME_PLACE}).first()
                if found is not None:
                    newest[place] = (found.low, found.high, found.effective_at_ms)
            last = newest.get(place)
            if last is not None and (last[:2] == (each.low, each.high) or last[2] >= each.effective_at_ms):
                continue
            newest[place] = (each.low, each.high, each.effective_at_ms)
            fresh.append(values)
        if fresh:
            self._connection.execute(insert_into(risk_point), fresh)
        return len(fresh)

    def risk_seq(self) -> int:
        """The sequence number of the latest risk; 0 without any."""
        return int(self._connection.execute(_RISK_SEQ).scalar_one() or 0)

    def risks_as_of(self, at_ms: int) -> list[Signal]:
        """The latest risk of each place and kind that was known at `at_ms`."""
        return [record(Signal, "risk_point", row) for row in self._connection.execute(_RISKS, {"at_ms": at_ms}).all()]

    def next_risk_ms(self, at_ms: int) -> int | None:
        """The time (after `at_ms`) from which the next stored risk is known; None without any. One exists only after
        the clock was set back."""
        found: int | None = self._connection.execute(_NEXT_RISK, {"at_ms": at_ms}).scalar_one()
        return found

    def _flag_row(
        self, source: str, region: str, each: NewFlag, keys: dict[str, int], held: tuple[int, int, int | None]
    ) -> dict[str, object]:
        return {
            "source": source,
            "region": region,
            "flag": each.flag,
            "subject": each.subject,
            "offer_key": None if each.offer_id is None else keys[each.offer_id],
            "nano_usd_per_hour": each.nano_usd_per_hour,
            "effective_at_ms": each.effective_at_ms,
            "opened_ms": held[0],
            "seen_ms": held[1],
            "cleared_ms": held[2],
            "detail": each.detail,
            "unconfirmed": each.unconfirmed,
        }
