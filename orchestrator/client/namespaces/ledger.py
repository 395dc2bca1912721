"""client.ledger: the entries behind every cost, and their correction."""

from __future__ import annotations

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.store import ledger_correction, ledger_entries
from orchestrator.services.store.views import LedgerCorrection
from orchestrator.services.views import EntryList


@checked
class Ledger:
    """Entries are only ever added; a correction is a new entry that names the one it corrects."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def entries(self, job: str | None = None, *, limit: int | None = 100, cursor: str | None = None) -> EntryList:
        """Entries of a job (None: of all), in the order of writing. Raises UsageError for a limit or cursor that is not
        valid."""
        return ledger_entries.entries(self._session.installation, job, limit=limit, cursor=cursor)

    def correct(self, reason: str, job: str | None = None, *, dry_run: bool = False) -> LedgerCorrection:
        """Book what is missing for each run of a job (None: of all) to be booked at its price times its time. `reason`,
        one line, is kept with it. Raises UsageError."""
        caller = self._session.caller
        return ledger_correction.correct(self._session.installation, reason, job, caller=caller, dry_run=dry_run)
