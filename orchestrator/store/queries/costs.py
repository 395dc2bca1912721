"""Sums and pages of ledger entries by filters: costs by time, owner and purpose.

An entry whose period spans midnight (UTC) or an end of the requested time is divided there (ledger.division), so sums
over days, months or groups of them add up to the ledger. Charges at the start of a machine (AT_START) and their
corrections are not divided: they belong to the start of their period. Few entries are divided: the store adds up all
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Select,
    and_,
    case,
    cast,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
)

from orchestrator.ledger.division import DAY_MS, DayPart, by_day
from orchestrator.model import Entry, EntryKind
from orchestrator.store.backends.types import Number
from orchestrator.store.queries.ledger import LedgerRows, entry_of
from orchestrator.store.rows import checked
from orchestrator.store.schema import LONGER_THAN_A_DAY, comparison, job, ledger_entry, ledger_sum
from orchestrator.store.transaction import Transaction

CostKey = Literal["project", "owner", "kind", "job", "offer", "basis"]
JobSort = Literal["newest", "oldest", "cost", "name"]
AT_START: tuple[EntryKind, ...] = ("minimum_charge", "failed_launch", "egress", "requests", "egress_estimate")
"""Kinds of entries that are billed when a machine starts. Their periods are the machine's whole life."""

_E = ledger_entry.c
_other = ledger_entry.alias()
_OF_A_START: ColumnElement[bool] = literal_column(  # what it corrects, what that corrects, and so on: rows of its run
    "(ledger_entry.kind = 'correction' AND EXISTS (WITH RECURSIVE corrected (kind, reverses) AS ("
    "SELECT entry.kind, entry.reverses FROM ledger_entry AS entry WHERE entry.id = ledger_entry.reverses UNION ALL "
    "SELECT entry.kind, entry.reverses FROM ledger_entry AS entry JOIN corrected ON entry.id = corrected.reverses) "
    f"SELECT 1 FROM corrected WHERE kind IN ({', '.join(map(repr, AT_START))})))",
    Boolean,
)
_ends_ms = case((or_(_E.kind.in_(AT_START), _OF_A_START), _E.period_start_ms), else_=_E.period_end_ms)
_MACHINE_MS = func.sum(case((_E.kind == "compute", _E.period_end_ms - _E.period_start_ms), else_=0))
_ON_ONE_DAY = or_(_ends_ms <= _E.period_start_ms, _E.period_start_ms // DAY_MS == (_ends_ms - 1) // DAY_MS)
_COLUMNS = {
    "project": _E.project, "owner": _E.owner, "kind": _E.kind, "job": _E.job_id, "offer": _E.offer_id, "basis": _E.basis
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CostFilter:
    """A filter of entries: those with a part in [`since_ms`, `until_ms`) and with these values. None: any."""

    since_ms: int | None = None
    until_ms: int | None = None
    project: str | None = None
    owner: str | None = None
    kind: str | None = None
    job_id: str | None = None
    offer_id: str | None = None
    provider: str | None = None
    basis: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """As conditions of a query."""
        equal = {"project": _E.project, "owner": _E.owner, "kind": _E.kind, "job_id": _E.job_id}
        equal |= {"offer_id": _E.offer_id, "basis": _E.basis}
        found: list[ColumnElement[bool]] = [
            column == value for name, column in equal.items() if (value := getattr(self, name)) is not None
        ]
        begun = [] if self.until_ms is None else [_E.period_start_ms < self.until_ms]
        if (since := self.since_ms) is not None:  # each of the two has an index
            lasting = or_(_E.period_start_ms >= since, _ends_ms > since)
            short = and_(_E.period_start_ms >= since - DAY_MS, *begun, lasting)
            found.append(or_(short, and_(LONGER_THAN_A_DAY, _E.period_start_ms < since - DAY_MS, *begun, lasting)))
        else:
            found += begun
        if self.provider is not None:
            found.append(_E.offer_id.startswith(f"{self.provider}/", autoescape=True))
        return found

    def whole(self) -> ColumnElement[bool]:
        """A condition of a query: an entry lies on one UTC day and is not cut by an end of the period."""
        cut: list[ColumnElement[bool]] = [_ON_ONE_DAY]
        if self.since_ms is not None:
            cut.append(_E.period_start_ms >= self.since_ms)
        if self.until_ms is not None:
            cut.append(or_(_ends_ms <= self.until_ms, _ends_ms <= _E.period_start_ms))
        return and_(*cut)


class CostSum(NamedTuple):
    """The parts of entries on a UTC day (its number since 1970-01-01) with a key: the number of entries, their sum in
    nano-USD, and the machine time that they bill. `continued` is the number of entries that also have a part on the day
    before."""

    day: int
    key: str
    entries: int
    amount_nano_usd: int
    machine_ms: int
    continued: int = 0


class SavingSum(NamedTuple):
    """The jobs that ended on a UTC day, compared with a baseline: their number, the amount paid, and the cost of the
    baseline; `left_out` jobs have no baseline."""

    day: int
    baseline: str
    left_out: bool
    jobs: int
    paid_nano_usd: int
    baseline_nano_usd: int


_SAVINGS = (
    select(
        job.c.finished_at_ms.op("/")(DAY_MS).label("day"),
        comparison.c.baseline,
        comparison.c.baseline_nano_usd.is_(None).label("left_out"),
        func.count(),
        func.sum(comparison.c.paid_nano_usd),
        func.sum(func.coalesce(comparison.c.baseline_nano_usd, 0)),
    )
    .join(job, job.c.id == comparison.c.job_id)
    .where(job.c.finished_at_ms.is_not(None), job.c.compared_at_ms.is_not(None))
)
_later = comparison.alias()
_NEWEST_VERSION = (
    select(func.max(_later.c.version))
    .where(_later.c.job_id == comparison.c.job_id)
    .correlate(comparison)
    .scalar_subquery()
)


class CostRows(LedgerRows):
    """Reads the ledger by filters."""

    def cost_sums(self, wanted: CostFilter, by: CostKey | None = None) -> list[CostSum]:
        """The sums by day and key (None: all in one, ""), ascending by day."""
        day = _E.period_start_ms.op("/")(DAY_MS).label("day")
        key: ColumnElement[Any] = _COLUMNS[by] if by is not None else func.max("")
        amount = cast(func.sum(_E.amount_nano_usd), Number)  # otherwise Postgres returns decimals
        query = select(day, key, func.count(), amount, cast(_MACHINE_MS, Number))
        query = query.where(*wanted.conditions(), wanted.whole())
        query = query.group_by(day, key) if by is not None else query.group_by(day)
        sums = {
            (int(row[0]), row[1]): CostSum(int(row[0]), row[1], row[2], int(row[3]), int(row[4]))
            for row in checked("ledger_entry", self._connection.execute(query), (int, str, int, int, int))
        }
        for row, parts in self._divided(wanted, by):
            for number, part in enumerate(parts):
                before = sums.get((part.day, row.key), CostSum(part.day, row.key, 0, 0, 0))
                sums[part.day, row.key] = CostSum(
                    part.day,
                    row.key,
                    before.entries + 1,
                    before.amount_nano_usd + part.amount_nano_usd,
                    before.machine_ms + (part.time_ms if row.kind == "compute" else 0),
                    before.continued + (number > 0),
                )
        return sorted(sums.values(), key=lambda each: each.day)

    def cost_jobs(self, wanted: CostFilter, by: CostKey | None = None) -> list[tuple[int, str, str]]:
        """The jobs that were billed, once for each key; None: once for each UTC day. (Day, key, job id); values that do
        not distinguish them are 0 or ""."""
        day = literal(0) if by is not None else _E.period_start_ms.op("/")(DAY_MS)
        key: ColumnElement[Any] = literal("") if by is None else _COLUMNS[by]
        query = select(day, key, _E.job_id).where(*wanted.conditions(), wanted.whole()).distinct()
        found = {(int(row[0]), str(row[1]), str(row[2])) for row in self._connection.execute(query)}
        for row, parts in self._divided(wanted, by):
            found |= {(part.day if by is None else 0, str(row.key), str(row.job_id)) for part in parts}
        return sorted(found)

    def entry_page(self, wanted: CostFilter, limit: int, before_id: str | None = None) -> tuple[list[Entry], int, int]:
        """The `limit` newest entries that were written before the entry `before_id`; the number of all that match the
        filters, and the sum of their parts in the period."""
        chosen = wanted.conditions()
        sums = select(func.count(), func.coalesce(func.sum(_E.amount_nano_usd), 0)).where(*chosen, wanted.whole())
        query: Select[Any] = select(*(_E[field.name] for field in fields(Entry))).where(*chosen)
        if before_id is not None:
            query = query.where(_E.seq < select(_other.c.seq).where(_other.c.id == before_id).scalar_subquery())
        rows = self._connection.execute(query.order_by(_E.seq.desc()).limit(limit)).all()
        count, amount = self._connection.execute(sums).one()
        divided = [parts for _, parts in self._divided(wanted, None)]
        amount += sum(part.amount_nano_usd for parts in divided for part in parts)
        return [entry_of(row) for row in rows], int(count) + len(divided), int(amount)

    def _divided(self, wanted: CostFilter, by: CostKey | None) -> Iterator[tuple[Any, list[DayPart]]]:
        """The entries that are not entirely on one day and in the period, with their parts in the period."""
        key: ColumnElement[Any] = literal("") if by is None else _COLUMNS[by]
        columns = (
            key.label("key"),
            _E.job_id,
            _E.kind,
            _E.period_start_ms,
            _ends_ms.label("end_ms"),
            _E.amount_nano_usd,
        )
        for row in self._connection.execute(select(*columns).where(*wanted.conditions(), not_(wanted.whole()))):
            parts = by_day(row.period_start_ms, row.end_ms, row.amount_nano_usd, wanted.since_ms, wanted.until_ms)
            yield row, list(parts)

    def job_projects(self) -> list[str]:
        """The projects of all jobs, including jobs without costs."""
        return [str(each) for each in self._connection.execute(select(job.c.project).distinct()).scalars()]

    def cost_values(self, name: Literal["project", "owner", "kind", "offer", "basis"]) -> list[str]:
        """The different values of a column of the ledger."""
        return [
            str(each)
            for each in self._connection.execute(select(_COLUMNS[name]).distinct().order_by(_COLUMNS[name])).scalars()
        ]

    def saving_sums(self, since_ms: int | None = None, until_ms: int | None = None) -> list[SavingSum]:
        """The newest comparisons of the jobs whose books are closed and that ended in [`since_ms`, `until_ms`), by day
        of their end."""
        query = _SAVINGS.where(comparison.c.version == _NEWEST_VERSION)
        if since_ms is not None:
            query = query.where(job.c.finished_at_ms >= since_ms)
        if until_ms is not None:
            query = query.where(job.c.finished_at_ms < until_ms)
        rows = self._connection.execute(query.group_by("day", comparison.c.baseline, "left_out")).all()
        return [SavingSum(int(r[0]), r[1], bool(r[2]), int(r[3]), int(r[4]), int(r[5])) for r in rows]


_PAID = (
    select(ledger_sum.c.job_id, func.sum(ledger_sum.c.amount_nano_usd).label("paid"))
    .group_by(ledger_sum.c.job_id)
    .subquery()
)
_ORDER: dict[str, tuple[ColumnElement[Any], ...]] = {
    "newest": (job.c.submitted_at_ms.desc(), job.c.id.desc()),
    "oldest": (job.c.submitted_at_ms, job.c.id),
    "cost": (func.coalesce(_PAID.c.paid, 0).desc(), job.c.id.desc()),
    "name": (job.c.name, job.c.id),
}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs: in these states, of a project, an owner or a group (its id), with a name that contains `text`,
    ignoring case."""

    states: tuple[str, ...] = ()
    project: str | None = None
    owner: str | None = None
    text: str = ""
    group: str | None = None


class JobPageRows(Transaction):
    """Reads pages of jobs."""

    def job_ids_page(self, wanted: JobFilter, sort: JobSort, limit: int | None, skip: int) -> tuple[list[str], int]:
        """The ids of a page of the jobs that match, in this order (`limit` None: without an end), and the number of all
        that match."""
        chosen: list[ColumnElement[bool]] = []
        if wanted.states:
            chosen.append(job.c.state.in_(wanted.states))
        if wanted.project is not None:
            chosen.append(job.c.project == wanted.project)
        if wanted.owner is not None:
            chosen.append(job.c.owner == wanted.owner)
        if wanted.group is not None:
            chosen.append(job.c.group_id == wanted.group)
        if wanted.text:
            chosen.append(func.lower(job.c.name).contains(wanted.text.lower(), autoescape=True))
        count = int(self._connection.execute(select(func.count()).select_from(job).where(*chosen)).scalar_one())
        query = select(job.c.id).where(*chosen)
        if sort == "cost":
            query = query.outerjoin(_PAID, _PAID.c.job_id == job.c.id)
        rows = self._connection.execute(query.order_by(*_ORDER[sort]).limit(limit).offset(skip))
        return [str(each) for each in rows.scalars()], count

    def job_state_counts(self) -> dict[str, int]:
        """The number of jobs in each state."""
        rows = self._connection.execute(select(job.c.state, func.count()).group_by(job.c.state))
        return {str(state): int(number) for state, number in rows}
