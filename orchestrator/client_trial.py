"""The SDK's look at a job before it is handed over: its file, its function, the speed of its steps. Base of the
Client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client_store import StoreClient
from orchestrator.config import Config

if TYPE_CHECKING:
    from orchestrator.jobfile.convert.task_file import Conversion
    from orchestrator.model import JobSpec
    from orchestrator.services.views import ImportedTable, PlanView, ProfileView, Trial


class TrialClient(StoreClient):
    """What a user can find out about a job on this machine."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._checked: list[JobSpec] = []  # their functions load here, or this machine cannot say

    def load(self, path: str | Path) -> JobSpec:
        """Read a job file. Raises SpecError with every problem in it."""
        from orchestrator.jobfile import load_job

        return load_job(path, now_ms=self._opened.clock.now_ms(), submitting=True)

    def convert(self, path: str | Path, to: str | Path | None = None, *, force: bool = False) -> Conversion:
        """A task file of SkyPilot or dstack as a job file. With `to` it is also written there; `force` overwrites.

        Raises SpecError where it is none of theirs or cannot be read, UsageError where it cannot be written.
        """
        from orchestrator.jobfile.convert import task_file

        conversion = task_file.convert_file(path, to)
        if to is not None:
            task_file.write_conversion(conversion, to, force=force)
        return conversion

    def profile(self, work: JobSpec | str | Path, *, timeout_s: float = 900.0) -> ProfileView:
        """Run a few steps of a job's program here; what they do is kept for plans, what they train is not.

        Raises SpecError, MissingExtraError without torch, TradewindError when the program fails.
        """
        from orchestrator.services.speed import profile

        spec = self.load(work) if isinstance(work, str | Path) else work
        return profile.profile(self._opened, spec, timeout_s=timeout_s)

    def try_here(self, spec: JobSpec) -> Trial:
        """Profile a job before it is submitted, if it fits this machine, with little time and memory.

        Says what was measured, or why nothing was. Raises SpecError for what would fail alike on any machine.
        """
        from orchestrator.services.speed import trial

        return trial.try_here(self._opened, spec)

    def check_entry(self, spec: JobSpec) -> str | None:
        """Load the job's function here, in a child process, where only that tells whether `train.args` fit it.

        Returns why it could not be checked, None if all is well. Raises SpecError with the traceback, UsageError.
        """
        from orchestrator.services.speed import entry_check

        reported = None if spec in self._checked else entry_check.check_entry(spec)
        self._checked.append(spec)
        return reported

    def import_throughputs(self, table: str | Path) -> ImportedTable:
        """Take over a table of speeds that others measured. Raises UsageError, SpecError with every bad row."""
        from orchestrator.services.speed import throughputs

        return throughputs.take_over(self._opened, Path(table))

    def _check_entries(self, view: PlanView) -> None:
        for job in view.new_jobs:
            self.check_entry(job.spec)
