"""Lists ledger entries in pages."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.installation import Installation
from orchestrator.services.paging import Cursors, checked_limit
from orchestrator.services.views import EntryList


@dataclass(frozen=True, slots=True)
class _After:
    """The page begins after this entry; new entries are always added at the end."""

    entry_id: str


_CURSORS = Cursors("ledger-entries", _After)


def entries(
    installation: Installation, ref: str | None = None, *, limit: int | None = 100, cursor: str | None = None
) -> EntryList:
    """The first `limit` entries of a job (None: of all) in the order of writing; `cursor` continues a listing. Raises
    NotFoundError; UsageError for an invalid limit or cursor."""
    most = checked_limit(limit)
    with installation.store.read() as tx:
        job_id = tx.find_job(ref).id if ref is not None else None
        filters = {"job": job_id}
        after = _CURSORS.read(cursor, filters)
        found = tx.entries(
            job_id=job_id,
            after_id=None if after is None else after.entry_id,
            limit=None if most is None else most + 1,
        )
    page = found[:most]
    more = len(page) < len(found)
    return EntryList(tuple(page), _CURSORS.write(_After(page[-1].id), filters) if more else None)
