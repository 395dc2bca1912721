"""client.speed: what is known of a job's speed before it runs."""

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
    """Without any of this a plan shows no cost and no finish time of a job that never ran."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def profile(self, work: Work, *, timeout_s: float = 900.0) -> ProfileView:
        """Run a few steps of a job's program here; what they compute is counted and kept for plans, what they train is
        not. `timeout_s` is in real seconds.

        Raises SpecError, MissingExtraError without torch, TradewindError when the program fails.
        """
        return profile.profile(self._session.installation, self._session.load(work), timeout_s=timeout_s)

    def try_here(self, work: Work) -> Trial:
        """Profile a job before it is submitted, if it fits this machine, with little time and memory.

        Says what was measured, or why nothing was. Raises SpecError for what would fail alike on any machine.
        """
        return trial.try_here(self._session.installation, self._session.load(work))

    def import_table(self, table: str | Path) -> ImportedTable:
        """Take over a table of speeds that others measured: CSV, or Gavel's CSV or JSON. Raises UsageError, SpecError
        with every bad row."""
        return throughputs.import_throughputs(self._session.installation, path_of(table))
