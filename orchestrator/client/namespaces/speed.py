"""client.speed: measures or imports a job's speed before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.services.speed import profile, throughputs, trial
from orchestrator.services.speed.views import ImportedTable, ProfileView
from orchestrator.services.views import Trial

if TYPE_CHECKING:
    from orchestrator.client.session import Work


@checked
class Speed:
    """Without a known speed, a plan shows no cost and no finish time for a job that never ran."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def profile(self, work: Work, *, timeout_s: float = 900.0) -> ProfileView:
        """Run a few steps of a job's program here. Their operations are counted and stored for plans; the trained state
        is discarded. `timeout_s` is in real seconds.

        Raises SpecError, MissingExtraError without torch, TradewindError if the program fails.
        """
        return profile.profile(self._session.installation, self._session.load(work), timeout_s=timeout_s)

    def try_here(self, work: Work) -> Trial:
        """Profile a job before it is submitted, with little time and memory, if it fits on this machine.

        Returns what was measured, or why nothing was. Raises SpecError for a mistake that would fail on any machine.
        """
        return trial.try_here(self._session.installation, self._session.load(work))

    def import_table(self, table: str | Path) -> ImportedTable:
        """Import a table of measured speeds: CSV, or Gavel's CSV or JSON. Raises UsageError, SpecError with every
        invalid row."""
        return throughputs.import_throughputs(self._session.installation, path_of(table))
