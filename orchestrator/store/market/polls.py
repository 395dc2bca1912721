"""Polls of price sources, and the state of each source and region after its last poll.

"No change" and "no data" are different: an unchanged price is as fresh as the last successful poll.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, case, func, or_, select, update

from orchestrator.store.market.offers import batches
from orchestrator.store.rows import checked, record
from orchestrator.store.schema import event, offer, poll, poll_state, price_flag
from orchestrator.store.transaction import Transaction, among, insert_into
from providers.collect.facts import UNLISTED, Flag
from providers.offer import CapacityType

SPOT = CapacityType.SPOT.value
ALL_REGIONS = ("", UNLISTED, "all")
"""The region of a poll of everything that a source has."""


@dataclass(frozen=True, slots=True)
class PollRecord:
    """A poll of a source's prices in a region ('': everywhere): the number of offers seen, of changed prices and of
    flagged rows. If it failed, `error` gives the reason and `hint` the remedy."""

    provider: str
    started_ms: int
    finished_ms: int
    offers_seen: int
    changed: int
    error: str | None
    source: str
    region: str
    flagged: int
    hint: str | None
    seq: int = field(default=0, compare=False)  # order of recording


@dataclass(frozen=True, slots=True)
class PollState:
    """The state of a source and region. `good_*` are those of the last successful, trusted poll; `failures` is the
    number of failed polls since. `newest_ms` is the latest change in the region, from which the next poll may begin.
    `suspect` is the reason why the last poll is not trusted, `suspect_since_ms` the time of the first such poll."""

    source: str
    region: str
    provider: str
    started_ms: int
    finished_ms: int
    offers_seen: int
    flagged: int
    error: str | None
    hint: str | None
    failures: int
    good_started_ms: int | None
    good_finished_ms: int | None
    newest_ms: int | None
    suspect: str | None
    suspect_since_ms: int | None
    passed: str | None  # number of skipped rows by reason, as text


class Named(NamedTuple):
    """A source that lists spot or on-demand offers of a provider in a region."""

    provider: str
    region: str
    spot: bool
    source: str


class Polled(NamedTuple):
    """All price changes of a provider's spot or on-demand offers in a region are known up to `until_ms`."""

    provider: str
    region: str
    spot: bool
    until_ms: int


_POLLS = select(*(poll.c[field.name] for field in fields(PollRecord))).order_by(poll.c.seq.desc())
_POLLS_OF_PROVIDER = _POLLS.where(poll.c.provider == bindparam("name"))
_BEFORE = poll.c.seq < bindparam("before")
_STATES = select(*(poll_state.c[field.name] for field in fields(PollState))).order_by(
    poll_state.c.provider, poll_state.c.source, poll_state.c.region
)
_LATEST_EVENT = select(event.c.at_ms).order_by(event.c.seq.desc()).limit(1)
_LATEST_POLL = select(func.max(poll_state.c.finished_ms)).where(
    poll_state.c.provider.in_(bindparam("names", expanding=True))
)
_LAST_GOOD_POLL = select(func.max(poll_state.c.good_started_ms)).where(poll_state.c.provider == bindparam("name"))
_PRICED_TO = (
    select(func.max(poll_state.c.good_started_ms))
    .join(offer, offer.c.source == poll_state.c.source)
    .where(offer.c.id == bindparam("name"))
    .where((poll_state.c.region == offer.c.region) | among(poll_state.c.region, ALL_REGIONS))
)
_UNCONFIRMED_FROM = (
    select(func.min(price_flag.c.effective_at_ms))
    .join(offer, offer.c.key == price_flag.c.offer_key)
    .where(offer.c.id == bindparam("name"), price_flag.c.cleared_ms.is_(None), price_flag.c.unconfirmed)
)
_NAMED = (
    select(offer.c.provider, offer.c.region, offer.c.capacity_type, offer.c.source).where(offer.c.listed).distinct()
)
_HEARD = select(poll_state.c.source, poll_state.c.region, poll_state.c.good_started_ms).where(
    poll_state.c.good_started_ms.is_not(None)
)
_IN_ITS_REGION = (poll_state.c.region == offer.c.region) | among(poll_state.c.region, ALL_REGIONS)


def _flagged(*flags: Flag) -> ColumnElement[bool]:
    """A condition: the offer has one of these flags open."""
    open_ones = (price_flag.c.offer_key == offer.c.key) & price_flag.c.cleared_ms.is_(None)
    return select(price_flag.c.seq).where(open_ones, among(price_flag.c.flag, flags)).correlate(offer).exists()


_GONE = (
    select(
        *(offer.c[name] for name in ("provider", "region", "instance_type", "capacity_type")),
        offer.c.source,
        func.max(poll_state.c.good_finished_ms),
    )
    .join(poll_state, offer.c.source == poll_state.c.source)
    .where(poll_state.c.good_finished_ms.is_not(None), _IN_ITS_REGION)
    .where(
        or_(
            and_(~offer.c.listed, ~_flagged(Flag.UNKNOWN_GPU, Flag.RENAMED_SKU, Flag.MALFORMED)),
            and_(offer.c.listed, _flagged(Flag.SPOT_NOT_BELOW_ON_DEMAND, Flag.OUTLIER)),
        )
    )
    .group_by(offer.c.provider, offer.c.region, offer.c.instance_type, offer.c.capacity_type, offer.c.source)
)
_REPORTED_BY_OTHERS = (
    select(offer.c.id, offer.c.source, func.max(poll_state.c.good_finished_ms))
    .join(poll_state, offer.c.source == poll_state.c.source)
    .where(offer.c.listed, offer.c.source != bindparam("name"), offer.c.id.in_(bindparam("ids", expanding=True)))
    .where(poll_state.c.good_finished_ms.is_not(None), _IN_ITS_REGION)
    .where(~_flagged(Flag.IMPLAUSIBLE))
    .group_by(offer.c.id, offer.c.source)
)
_NEWS = select(
    func.max(poll.c.seq),
    func.sum(case((poll.c.provider.in_(bindparam("names", expanding=True)), poll.c.changed), else_=0)),
).where(poll.c.seq > bindparam("seq"), poll.c.source != poll.c.provider)
_HERE = (poll_state.c.source == bindparam("of_source")) & (poll_state.c.region == bindparam("of_region"))
_SUCCEEDED: dict[str, Any] = {
    "failures": 0,
    "suspect": None,
    "suspect_since_ms": None,
    "good_started_ms": bindparam("started_ms"),
    "good_finished_ms": bindparam("finished_ms"),
    "newest_ms": case(
        (poll_state.c.newest_ms > bindparam("newest"), poll_state.c.newest_ms),
        else_=func.coalesce(bindparam("newest"), poll_state.c.newest_ms),
    ),
}
_LAST: dict[str, Any] = {
    name: bindparam(name) for name in ("started_ms", "finished_ms", "offers_seen", "flagged", "error", "hint", "passed")
}
_NOTE_SUCCESS = update(poll_state).where(_HERE).values(**_LAST, **_SUCCEEDED)
_NOTE_SUSPECT = (
    update(poll_state)
    .where(_HERE)
    .values(
        **_LAST,
        failures=0,
        suspect=bindparam("why"),
        suspect_since_ms=case(  # unless a clock was ahead
            (poll_state.c.suspect_since_ms <= bindparam("started_ms"), poll_state.c.suspect_since_ms),
            else_=bindparam("started_ms"),
        ),
    )
)
_SUSPECT_SINCE = select(poll_state.c.suspect_since_ms).where(_HERE)
_NOTE_FAILURE = update(poll_state).where(_HERE).values(**_LAST, failures=poll_state.c.failures + 1)


class Gone(NamedTuple):
    """Offers that, according to the last poll of their source at `at_ms`, are not available as listed."""

    provider: str
    region: str
    instance_type: str
    spot: bool
    source: str
    at_ms: int


class ReportedBy(NamedTuple):
    """The source that lists an offer, and the time of its last report."""

    offer_id: str
    source: str
    heard_ms: int


class PollRows(Transaction):
    """Reads and writes polls."""

    def record_poll(
        self,
        provider: str,
        started_ms: int,
        finished_ms: int,
        offers_seen: int,
        changed: int,
        error: str | None,
        *,
        source: str | None = None,
        region: str = "",
        flagged: int = 0,
        hint: str | None = None,
        newest_ms: int | None = None,
        suspect: str = "",
        passed: str = "",
    ) -> None:
        """Stores a poll of `source` (default: the provider itself), successful or not. `suspect` is the reason why its
        result is not trusted; then prices are not known up to its time. `passed` is the number of skipped rows by
        reason."""
        name = provider if source is None else source
        last: dict[str, int | str | None] = {
            "started_ms": started_ms,
            "finished_ms": finished_ms,
            "offers_seen": offers_seen,
            "flagged": flagged,
            "error": error,
            "hint": hint,
        }
        self._insert(poll, provider=provider, source=name, region=region, changed=changed, **last)
        last["passed"] = passed or None
        here = {"of_source": name, "of_region": region}
        if suspect:
            done = self._connection.execute(_NOTE_SUSPECT, {**last, **here, "why": suspect})
        elif error is None:
            done = self._connection.execute(_NOTE_SUCCESS, {**last, **here, "newest": newest_ms})
        else:
            done = self._connection.execute(_NOTE_FAILURE, {**last, **here})
        if done.rowcount == 0:
            good = error is None and not suspect
            self._connection.execute(
                insert_into(poll_state),
                {
                    **last,
                    "source": name,
                    "region": region,
                    "provider": provider,
                    "failures": 0 if error is None else 1,
                    "good_started_ms": started_ms if good else None,
                    "good_finished_ms": finished_ms if good else None,
                    "newest_ms": newest_ms if good else None,
                    "suspect": suspect or None,
                    "suspect_since_ms": started_ms if suspect else None,
                },
            )

    def polls(
        self, provider: str | None = None, limit: int | None = 20, *, before_seq: int | None = None
    ) -> list[PollRecord]:
        """The latest polls, newest first; with `before_seq`, those recorded before it."""
        query = (_POLLS if provider is None else _POLLS_OF_PROVIDER).limit(limit)
        if before_seq is not None:
            query = query.where(_BEFORE)
        asked = {"name": provider, "before": before_seq}
        return [record(PollRecord, "poll", row) for row in self._connection.execute(query, asked).all()]

    def poll_states(self) -> list[PollState]:
        """The state of each source and region, by provider, source and region, without failures to list regions that
        were resolved later."""
        states = [record(PollState, "poll_state", row) for row in self._connection.execute(_STATES).all()]
        heard_ms: dict[str, int] = {}
        for each in states:
            if each.region != UNLISTED and each.good_started_ms is not None:
                heard_ms[each.source] = max(each.good_started_ms, heard_ms.get(each.source, 0))
        return [each for each in states if each.region != UNLISTED or each.started_ms > heard_ms.get(each.source, -1)]

    def suspect_since_ms(self, source: str, region: str) -> int | None:
        """The start of the first untrusted poll of a source and region; None if the last poll is trusted, or failed
        without an untrusted one before it."""
        asked = {"of_source": source, "of_region": region}
        found: int | None = self._connection.execute(_SUSPECT_SINCE, asked).scalar_one_or_none()
        return found

    def named(self) -> tuple[Named, ...]:
        """The sources of each provider, region and capacity type. Reads all listed offers."""
        rows = checked("offer", self._connection.execute(_NAMED), (str, str, str, str))
        return tuple(sorted(Named(row[0], row[1], row[2] == SPOT, row[3]) for row in rows))

    def polled(self, named: Sequence[Named] | None = None) -> list[Polled]:
        """The time up to which all price changes are known, by provider, region and capacity type of listed offers.
        Those without a successful poll are missing. `named` is the result of `named` if already read."""
        heard: dict[tuple[str, str], int] = {}
        for source, region, good_ms in checked("poll_state", self._connection.execute(_HEARD), (str, str, int)):
            heard[source, region] = good_ms
        until: dict[tuple[str, str, bool], int] = {}
        for each in self.named() if named is None else named:
            key = (each.provider, each.region, each.spot)
            for region in {each.region, *ALL_REGIONS}:
                if (good_ms := heard.get((each.source, region))) is not None:
                    until[key] = min(until.get(key, good_ms), good_ms)
        return [Polled(*key, until_ms) for key, until_ms in sorted(until.items())]

    def gone(self) -> list[Gone]:
        """Kinds of offers with one that its source no longer lists, never listed, or reports with an implausible price
        (not below on-demand, a large jump). Unreadable rows do not count."""
        rows = checked("offer", self._connection.execute(_GONE), (str, str, str, str, str, int))
        return [Gone(row[0], row[1], row[2], row[3] == SPOT, row[4], row[5]) for row in rows]

    def reported_by_others(self, source: str, offer_ids: Collection[str]) -> Iterator[ReportedBy]:
        """Those of the offers that a source other than `source` reports with a trusted price."""
        for batch in batches(offer_ids):
            rows = self._connection.execute(_REPORTED_BY_OTHERS, {"name": source, "ids": batch})
            yield from (ReportedBy(*row) for row in checked("offer", rows, (str, str, int)))

    def changes_since(self, seq: int, providers: Collection[str]) -> tuple[int, int]:
        """The number of the latest poll, and the number of price changes of `providers` that collectors (sources other
        than the provider itself) found in polls after `seq`."""
        newest, changed = self._connection.execute(_NEWS, {"seq": seq, "names": sorted(providers)}).one()
        return (seq if newest is None else newest), int(changed or 0)

    def latest_ms(self, providers: Collection[str]) -> int:
        """The latest market time of any event or of a poll of these providers, in ms; 0 without any."""
        event_ms: int | None = self._connection.execute(_LATEST_EVENT).scalar_one_or_none()
        poll_ms: int | None = self._connection.execute(_LATEST_POLL, {"names": sorted(providers)}).scalar_one()
        return max(event_ms or 0, poll_ms or 0)

    def last_good_poll_ms(self, provider: str) -> int | None:
        """The start of the latest successful poll of `provider` in any region, in ms; None without one."""
        found: int | None = self._connection.execute(_LAST_GOOD_POLL, {"name": provider}).scalar_one()
        return found

    def priced_to_ms(self, offer_id: str) -> int | None:
        """The time up to which all price changes of an offer are known: the start of the last successful poll of its
        source in its region or, if earlier, the time of a price that awaits a second report."""
        polled: int | None = self._connection.execute(_PRICED_TO, {"name": offer_id}).scalar_one()
        doubted: int | None = self._connection.execute(_UNCONFIRMED_FROM, {"name": offer_id}).scalar_one()
        return polled if polled is None or doubted is None else min(polled, doubted)
