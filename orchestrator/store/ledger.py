"""Ledger entries: money, to the nano-dollar, never changed once written. Must not know how a cost is worked out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from orchestrator.model import Entry
from orchestrator.store.schema import ledger_entry
from orchestrator.store.transaction import Transaction, columns, insert_into, to_mapping, to_text

_ENTRY = [ledger_entry.c[field.name] for field in fields(Entry)]
_FILTERS = {
    "job_id": ledger_entry.c.job_id == bindparam("job_id"),
    "run_id": ledger_entry.c.run_id == bindparam("run_id"),
    "project": ledger_entry.c.project == bindparam("project"),
    "since_ms": ledger_entry.c.period_start_ms >= bindparam("since_ms"),
    "until_ms": ledger_entry.c.period_start_ms < bindparam("until_ms"),
}

_BOOKED_UNTIL = (  # periods of a run follow one another: the one that starts last ends last
    select(ledger_entry.c.period_end_ms)
    .where(ledger_entry.c.run_id == bindparam("run_id"), ledger_entry.c.reverses == "")
    .order_by(ledger_entry.c.period_start_ms.desc(), ledger_entry.c.period_end_ms.desc())
    .limit(1)
)


@cache
def _entries(filters: tuple[str, ...]) -> Select[Any]:
    return select(*_ENTRY).where(*(_FILTERS[name] for name in filters)).order_by(ledger_entry.c.seq)


class LedgerRows(Transaction):
    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Raises StoreError when one exists: same id, or same run, period start, kind and `reverses`."""
        rows = [
            columns(entry) | {"labels": to_text(entry.labels), "reverses": entry.reverses or ""} for entry in entries
        ]
        if rows:
            self._connection.execute(insert_into(ledger_entry), rows)

    def entries(
        self,
        job_id: str | None = None,
        run_id: str | None = None,
        project: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[Entry]:
        """In the order of writing. An entry belongs to the window [since, until) in which its period starts, so that
        adjoining windows share no entry and miss none."""
        given: dict[str, str | int | None] = {
            "job_id": job_id,
            "run_id": run_id,
            "project": project,
            "since_ms": since_ms,
            "until_ms": until_ms,
        }
        filters = {name: value for name, value in given.items() if value is not None}
        return [
            Entry(**{**row._mapping, "labels": to_mapping(row.labels), "reverses": row.reverses or None})
            for row in self._connection.execute(_entries(tuple(filters)), filters)
        ]

    def booked_until_ms(self, run_id: str) -> int | None:
        """The largest period end among the run's entries, None when it has none."""
        return self._connection.execute(_BOOKED_UNTIL, {"run_id": run_id}).scalar_one_or_none()

    def total_nano_usd(self, job_id: str | None = None) -> int:
        """The exact sum of the entries, of one job or of all."""
        query = select(func.sum(ledger_entry.c.amount_nano_usd))
        if job_id is not None:
            query = query.where(ledger_entry.c.job_id == job_id)
        return int(self._connection.execute(query).scalar_one() or 0)
