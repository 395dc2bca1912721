"""client.ledger: the entries behind every cost, and their correction."""

from __future__ import annotations

from orchestrator.client.session import Session
from orchestrator.services.store import ledger_correction
from orchestrator.services.store.views import LedgerCorrection


class Ledger:
    """Entries are only ever added; a correction is a new entry that names the one it corrects."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def correct(self, reason: str, job: str | None = None, *, dry_run: bool = False) -> LedgerCorrection:
        """Book what is missing for each run of a job (None: of all) to be booked at its price times its time. `reason`,
        one line, is kept with it. Raises UsageError."""
        caller = self._session.caller
        return ledger_correction.correct(self._session.installation, reason, job, caller=caller, dry_run=dry_run)
