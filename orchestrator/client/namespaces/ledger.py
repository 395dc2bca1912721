"""client.ledger: the entries of every cost, and their correction."""

from __future__ import annotations

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.store import ledger_correction, ledger_entries
from orchestrator.services.store.views import LedgerCorrection
from orchestrator.services.views import EntryList


@checked
class Ledger:
    """Entries are never changed; a correction is a new entry that names the entry it corrects."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def entries(self, job: str | None = None, *, limit: int | None = 100, cursor: str | None = None) -> EntryList:
        """The entries of a job (None: of all jobs), in the order in which they were written. Raises UsageError for an
        invalid limit or cursor."""
        return ledger_entries.entries(self._session.installation, job, limit=limit, cursor=cursor)

    def correct(self, reason: str, job: str | None = None, *, dry_run: bool = False) -> LedgerCorrection:
        """Book the missing amounts, so that the entries of each run of a job (None: of all jobs) add up to its price
        times its time. `reason`, one line, is stored with them. Raises UsageError."""
        caller = self._session.caller
        return ledger_correction.correct(self._session.installation, reason, job, caller=caller, dry_run=dry_run)
