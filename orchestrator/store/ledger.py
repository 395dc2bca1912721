"""Ledger entries: money, to the nano-dollar, never changed once written. Must not know how a cost is worked out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from sqlalchemy import func, insert, select

from orchestrator.model import Entry
from orchestrator.store.schema import ledger_entry
from orchestrator.store.transaction import Transaction, columns, to_mapping, to_text

_ENTRY = [ledger_entry.c[field.name] for field in fields(Entry)]


class LedgerRows(Transaction):
    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Raises StoreError when one exists: same id, or same run, period start, kind and `reverses`."""
        rows = [
            columns(entry) | {"labels": to_text(entry.labels), "reverses": entry.reverses or ""} for entry in entries
        ]
        if rows:
            self._connection.execute(insert(ledger_entry), rows)

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
        query = select(*_ENTRY).order_by(ledger_entry.c.seq)
        if job_id is not None:
            query = query.where(ledger_entry.c.job_id == job_id)
        if run_id is not None:
            query = query.where(ledger_entry.c.run_id == run_id)
        if project is not None:
            query = query.where(ledger_entry.c.project == project)
        if since_ms is not None:
            query = query.where(ledger_entry.c.period_start_ms >= since_ms)
        if until_ms is not None:
            query = query.where(ledger_entry.c.period_start_ms < until_ms)
        return [
            Entry(**{**row._mapping, "labels": to_mapping(row.labels), "reverses": row.reverses or None})
            for row in self._connection.execute(query)
        ]

    def total_nano_usd(self, job_id: str | None = None) -> int:
        """The exact sum of the entries, of one job or of all."""
        query = select(func.sum(ledger_entry.c.amount_nano_usd))
        if job_id is not None:
            query = query.where(ledger_entry.c.job_id == job_id)
        return int(self._connection.execute(query).scalar_one() or 0)
