"""Comparisons: the savings of jobs, computed when their books closed and never changed.

A job's books are open while one of its machines may still be booked. A new ledger entry marks a job as not compared;
once its books are closed again, another version of the comparison is due.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Row, bindparam, func, select, update

from orchestrator.errors import UnreadableRowError
from orchestrator.formats.codec import Codec
from orchestrator.ledger import Comparison, Inputs
from orchestrator.model import TERMINAL
from orchestrator.store.market.offers import batches
from orchestrator.store.packed import packed_text, unpacked_text
from orchestrator.store.rows import Unreadable, document, record, records, values_of
from orchestrator.store.schema import UNCOMPARED, UNSETTLED, comparison, job, run
from orchestrator.store.transaction import Transaction, among

_INPUTS = Codec(Inputs, "comparison-inputs/1")
_ENDED = among(job.c.state, TERMINAL)
_OPEN_BOOKS = select(run.c.id).where(run.c.job_id == job.c.id, UNSETTLED).correlate(job).exists()
_DUE = (
    select(job.c.id)
    .where(UNCOMPARED, _ENDED, job.c.quarantined_at_ms.is_(None), ~_OPEN_BOOKS)
    .order_by(job.c.id)
    .limit(bindparam("most"))
)
_CLOSED = select(job.c.id).where(job.c.id == bindparam("of_job"), _ENDED, ~_OPEN_BOOKS)
_later = comparison.alias()
_COLUMNS = [comparison.c[field.name] for field in fields(Comparison)]
_NEWEST = (
    select(*_COLUMNS)
    .where(
        comparison.c.version
        == select(func.max(_later.c.version)).where(_later.c.job_id == comparison.c.job_id).scalar_subquery()
    )
    .order_by(comparison.c.seq)
)
_NEWEST_OF = _NEWEST.where(comparison.c.job_id.in_(bindparam("job_ids", expanding=True)))
_NEWEST_OF_ONE = _NEWEST.where(comparison.c.job_id == bindparam("of_job"))
_ALL = select(*_COLUMNS).where(comparison.c.job_id == bindparam("of_job")).order_by(comparison.c.seq)
_MARK = update(job).where(job.c.id == bindparam("of_job")).values(compared_at_ms=bindparam("now_ms"))


class ComparisonRows(Transaction):
    """Reads and writes comparisons."""

    def books_closed(self, job_id: str) -> bool:
        """True if a job has ended and all of its machines are fully booked."""
        return self._connection.execute(_CLOSED, {"of_job": job_id}).one_or_none() is not None

    def uncompared(self, most: int) -> list[str]:
        """The ids of at most `most` jobs whose books are closed and that must be compared."""
        return values_of(job.c.id, self._connection.execute(_DUE, {"most": most}).scalars(), str)

    def add_comparisons(self, new: Sequence[Comparison]) -> None:
        """Stores one version of a job's comparisons and marks the job as compared. Raises StoreError if it exists."""
        for each in new:
            self._insert(
                comparison,
                job_id=each.job_id,
                version=each.version,
                baseline=each.baseline,
                at_ms=each.at_ms,
                reason=each.reason,
                paid_nano_usd=each.paid_nano_usd,
                entries=each.entries,
                baseline_nano_usd=each.baseline_nano_usd,
                left_out=each.left_out,
                inputs=None if each.inputs is None else packed_text(_INPUTS.dumps(each.inputs)),
            )
        for job_id, at_ms in {each.job_id: each.at_ms for each in new}.items():
            self._connection.execute(_MARK, {"of_job": job_id, "now_ms": at_ms})

    def comparisons_of(
        self, job_ids: Collection[str], unreadable: Unreadable | None = None
    ) -> dict[str, list[Comparison]]:
        """The latest version of the comparisons of each of these jobs."""
        found: dict[str, list[Comparison]] = {job_id: [] for job_id in job_ids}
        for batch in batches(found):
            rows = self._connection.execute(_NEWEST_OF, {"job_ids": batch}).all()
            for each in records(_comparison, rows, "job_id", unreadable):
                found[each.job_id].append(each)
        return found

    def comparisons(
        self, job_id: str | None = None, *, all_versions: bool = False, unreadable: Unreadable | None = None
    ) -> list[Comparison]:
        """The latest version of the comparisons of a job, or of all; with `all_versions`, every version in order.

        `unreadable` is called for unreadable ones, which are skipped; without it, RowError is raised.
        """
        query = _NEWEST if job_id is None else _ALL if all_versions else _NEWEST_OF_ONE
        rows = self._connection.execute(query, {} if job_id is None else {"of_job": job_id}).all()
        return records(_comparison, rows, "job_id", unreadable)


def _comparison(row: Row[Any]) -> Comparison:
    found = record(Comparison, "comparison", row, of=row.job_id, inputs=None)
    if row.inputs is None:
        return found
    try:
        text = unpacked_text(row.inputs)
    except ValueError as error:
        raise UnreadableRowError("comparison", row.job_id, str(error)) from error
    return replace(found, inputs=document(_INPUTS, text, "comparison", row.job_id))
