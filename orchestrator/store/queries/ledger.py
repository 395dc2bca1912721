"""Ledger entries: costs in nano-USD, never changed.

Their sums by job, run and kind are updated in the transaction that adds an entry, because every tick needs the cost of
jobs without adding up a year of entries. `unequal_sums` compares the sums with the entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, bindparam, delete, func, select, text, update

from orchestrator.errors import BookingError, NotFoundError
from orchestrator.formats.codec import dumps
from orchestrator.model import Entry
from orchestrator.store.market.offers import batches
from orchestrator.store.rows import checked, mapping, record
from orchestrator.store.schema import BESIDES, MACHINE_TIME, job, ledger_entry, ledger_sum, run
from orchestrator.store.transaction import Transaction, columns, insert_into

_ENTRY = [ledger_entry.c[field.name] for field in fields(Entry)]
_FILTERS = {
    "job_id": ledger_entry.c.job_id == bindparam("job_id"),
    "run_id": ledger_entry.c.run_id == bindparam("run_id"),
    "project": ledger_entry.c.project == bindparam("project"),
    "since_ms": ledger_entry.c.period_start_ms >= bindparam("since_ms"),
    "until_ms": ledger_entry.c.period_start_ms < bindparam("until_ms"),
    "after": ledger_entry.c.seq > bindparam("after"),
}

_BOOKED_UNTIL = select(func.max(ledger_entry.c.period_end_ms)).where(
    ledger_entry.c.run_id == bindparam("run_id"), MACHINE_TIME
)

_charges = (
    select(ledger_entry.c.id, ledger_entry.c.amount_nano_usd)
    .where(ledger_entry.c.run_id == bindparam("run_id"), BESIDES, ledger_entry.c.kind != "correction")
    .cte("charges", recursive=True)
)
_charges = _charges.union_all(  # their corrections, and corrections of corrections
    select(ledger_entry.c.id, ledger_entry.c.amount_nano_usd)
    .join(_charges, ledger_entry.c.reverses == _charges.c.id)
    .where(ledger_entry.c.run_id == bindparam("run_id"), ledger_entry.c.kind != "compute")
)
_CHARGED = select(func.sum(_charges.c.amount_nano_usd))

_ADDED = ("job_id", "run_id", "kind", "amount_nano_usd")
_CHECK = "nothing was written; check the ledger: tradewind store check"
_BILLED_TO = select(run.c.billed_to_ms).where(run.c.id == bindparam("run_id"))
_OVERLAPPING = (
    select(ledger_entry.c.id)
    .where(
        ledger_entry.c.run_id == bindparam("run_id"),
        MACHINE_TIME,
        ledger_entry.c.period_start_ms < bindparam("end_ms"),
        ledger_entry.c.period_end_ms > bindparam("start_ms"),
    )
    .limit(1)
)
_CORRECTED = select(ledger_entry.c.id).where(
    ledger_entry.c.id == bindparam("entry_id"), ledger_entry.c.run_id == bindparam("run_id")
)

_ADD_TO_SUM = text(
    "INSERT INTO ledger_sum (job_id, run_id, kind, entries, amount_nano_usd) "
    "VALUES (:job_id, :run_id, :kind, 1, :amount_nano_usd) ON CONFLICT (job_id, run_id, kind) DO UPDATE SET "
    "entries = ledger_sum.entries + 1, amount_nano_usd = ledger_sum.amount_nano_usd + excluded.amount_nano_usd"
)
_OF_JOBS = (
    select(*_ENTRY)
    .where(ledger_entry.c.job_id.in_(bindparam("job_ids", expanding=True)))
    .order_by(ledger_entry.c.job_id, ledger_entry.c.seq)
)
_ADD_UP = text(
    "INSERT INTO ledger_sum (job_id, run_id, kind, entries, amount_nano_usd) "
    "SELECT job_id, run_id, kind, count(*), sum(amount_nano_usd) FROM ledger_entry GROUP BY job_id, run_id, kind"
)
_SUM = [ledger_sum.c[name] for name in ("job_id", "run_id", "kind", "entries", "amount_nano_usd")]
_SUMS = select(*_SUM).where(ledger_sum.c.job_id.in_(bindparam("job_ids", expanding=True)))
_TOTAL = select(func.sum(ledger_sum.c.amount_nano_usd))
_TOTAL_OF_JOB = _TOTAL.where(ledger_sum.c.job_id == bindparam("job_id"))
_TOTAL_OF_PROJECT = (
    _TOTAL.select_from(ledger_sum)
    .join(job, job.c.id == ledger_sum.c.job_id)
    .where(job.c.project == bindparam("project"))
)
_TOTAL_OF_RUN = _TOTAL_OF_JOB.where(ledger_sum.c.run_id == bindparam("run_id"))
_UNEQUAL = text(
    "SELECT job_id, run_id, kind FROM (SELECT job_id, run_id, kind, entries, amount_nano_usd FROM ledger_sum UNION ALL "
    "SELECT job_id, run_id, kind, -count(*), -sum(amount_nano_usd) FROM ledger_entry GROUP BY job_id, run_id, kind) "
    "AS both_of_them GROUP BY job_id, run_id, kind HAVING sum(entries) <> 0 OR sum(amount_nano_usd) <> 0 "
    "ORDER BY job_id, run_id, kind"
)

_UNCOMPARED_AGAIN = (
    update(job).where(job.c.id == bindparam("of_job"), job.c.compared_at_ms.is_not(None)).values(compared_at_ms=None)
)


class LedgerSum(NamedTuple):
    """The number of a run's entries of a kind and their sum in nano-USD."""

    job_id: str
    run_id: str
    kind: str
    entries: int
    amount_nano_usd: int


_SEQ = select(ledger_entry.c.seq).where(ledger_entry.c.id == bindparam("entry_id"))


@cache
def _entries(filters: tuple[str, ...]) -> Select[Any]:
    return select(*_ENTRY).where(*(_FILTERS[name] for name in filters)).order_by(ledger_entry.c.seq)


class LedgerRows(Transaction):
    """Reads and writes ledger entries."""

    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Adds entries. Raises BookingError for one that bills a period of its run twice or past `billed_to_ms`, or
        that corrects an entry of another run; StoreError for a duplicate (same id; or same run, period start, kind
        and `reverses`). Then roll the transaction back: the entries before it are already written."""
        for entry in entries:
            self._admit_entry(entry)
            row = columns(entry) | {"labels": dumps(entry.labels), "reverses": entry.reverses or ""}
            self._connection.execute(insert_into(ledger_entry), row)
            self._connection.execute(_ADD_TO_SUM, {name: row[name] for name in _ADDED})
            self._connection.execute(_UNCOMPARED_AGAIN, {"of_job": entry.job_id})

    def load_entries(self, entries: Sequence[Entry]) -> None:
        """Adds the entries of a generated history, unchecked and many times as fast as `add_entries`."""
        rows = [columns(entry) | {"labels": dumps(entry.labels), "reverses": entry.reverses or ""} for entry in entries]
        if rows:
            self._insert_many(ledger_entry, rows)
        self.renew_sums()

    def entries(
        self,
        job_id: str | None = None,
        run_id: str | None = None,
        project: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        *,
        after_id: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """The first `limit` entries after `after_id`, in the order of writing. An entry belongs to the window [since,
        until) in which its period starts, so adjacent windows neither share nor miss entries. Raises NotFoundError if
        there is no such entry."""
        after = None
        if after_id is not None:
            after = self._connection.execute(_SEQ, {"entry_id": after_id}).scalar_one_or_none()
            if after is None:
                raise NotFoundError(f"there is no entry {after_id}")
        given: dict[str, str | int | None] = {
            "job_id": job_id,
            "run_id": run_id,
            "project": project,
            "since_ms": since_ms,
            "until_ms": until_ms,
            "after": after,
        }
        filters = {name: value for name, value in given.items() if value is not None}
        rows = self._connection.execute(_entries(tuple(filters)).limit(limit), filters).all()
        return [entry_of(row) for row in rows]

    def entries_of(self, job_ids: Collection[str] | None = None) -> Iterator[Entry]:
        """A stream of all entries in the order of writing, or of those of these jobs, job by job; there may be
        millions."""
        stream = {"yield_per": 2000}
        if job_ids is None:
            yield from map(entry_of, self._connection.execute(_entries(()), execution_options=stream))
        else:
            for batch in batches(job_ids):
                yield from map(
                    entry_of, self._connection.execute(_OF_JOBS, {"job_ids": batch}, execution_options=stream)
                )

    def renew_sums(self) -> None:
        """Add up all entries again, after something other than `add_entries` has written to the books."""
        self._connection.execute(delete(ledger_sum))
        self._connection.execute(_ADD_UP)

    def booked_until_ms(self, run_id: str) -> int | None:
        """The latest period end of a run's machine-time entries, in ms; None without entries."""
        return self._connection.execute(_BOOKED_UNTIL, {"run_id": run_id}).scalar_one_or_none()

    def total_nano_usd(self, job_id: str | None = None, run_id: str | None = None) -> int:
        """The exact sum of the entries of all jobs, of one job or of one run, in nano-USD."""
        query = _TOTAL if job_id is None else _TOTAL_OF_JOB if run_id is None else _TOTAL_OF_RUN
        return int(self._connection.execute(query, {"job_id": job_id, "run_id": run_id}).scalar_one() or 0)

    def project_nano_usd(self, project: str) -> int:
        """The exact sum of the entries of all jobs of a project, in nano-USD."""
        return int(self._connection.execute(_TOTAL_OF_PROJECT, {"project": project}).scalar_one() or 0)

    def ledger_sums(self, job_ids: Collection[str]) -> Iterator[LedgerSum]:
        """The sums of these jobs, by run and kind. Raises UnreadableRowError."""
        for batch in batches(job_ids):
            rows = self._connection.execute(_SUMS, {"job_ids": batch})
            yield from (LedgerSum(*row) for row in checked("ledger_sum", rows, (str, str, str, int, int)))

    def unequal_sums(self) -> list[str]:
        """The runs and kinds whose stored sums differ from their entries: none in a valid store. Reads all entries."""
        return [f"{row.kind} of {row.run_id}" for row in self._connection.execute(_UNEQUAL)]

    def charged_nano_usd(self, run_id: str) -> int:
        """The sum of a run's entries other than machine time, corrections included, in nano-USD."""
        return int(self._connection.execute(_CHARGED, {"run_id": run_id}).scalar_one() or 0)

    def _admit_entry(self, entry: Entry) -> None:
        """The final check of every new entry. Raises BookingError."""
        start, end = entry.period_start_ms, entry.period_end_ms
        if entry.kind == "correction":
            named = {"entry_id": entry.reverses, "run_id": entry.run_id}
            if self._connection.execute(_CORRECTED, named).first() is None:
                raise BookingError(
                    f"{entry.id} corrects {entry.reverses}, which is not an entry of {entry.run_id}", hint=_CHECK
                )
        if entry.kind != "compute":
            return
        found = self._connection.execute(
            _OVERLAPPING, {"run_id": entry.run_id, "start_ms": start, "end_ms": end}
        ).scalar_one_or_none()
        if found is not None:
            raise BookingError(f"{entry.run_id} is already booked between {start} and {end}: {found}", hint=_CHECK)
        ended_ms = self._connection.execute(_BILLED_TO, {"run_id": entry.run_id}).scalar_one_or_none()
        if ended_ms is not None and end > ended_ms:
            raise BookingError(
                f"{entry.run_id} was billed up to {ended_ms} and cannot be booked up to {end}", hint=_CHECK
            )


def entry_of(row: Row[Any]) -> Entry:
    """An entry from its columns. Raises UnreadableRowError."""
    labels = mapping("ledger_entry", row.id, row.labels)
    return record(Entry, "ledger_entry", row, labels=labels, reverses=row.reverses or None)
