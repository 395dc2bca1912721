"""client.job_files: job files and mappings read, checked, and converted from other tools' task files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.jobfile.convert import task_file
from orchestrator.jobfile.convert.task_file import Conversion
from orchestrator.model import JobSpec

if TYPE_CHECKING:
    from orchestrator.client.session import Work


@checked
class JobFiles:
    """What to run, before it is a job."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def load(self, work: Work) -> JobSpec:
        """The spec of a job file, or of a mapping of its form, whose paths are relative to the working folder. One
        that names no project gets the caller's. Raises SpecError with every problem in it, each with its field."""
        return self._session.load(work)

    def check_entry(self, work: Work) -> str | None:
        """Load the job's function here, in a child process, where only that tells whether `train.args` fit it.

        Returns why it could not be checked, None if all is well. Raises SpecError with the traceback, UsageError when
        the environment lacks a secret of the job.
        """
        return self._session.handover.check(self._session.load(work))

    def convert(self, path: str | Path, to: str | Path | None = None, *, force: bool = False) -> Conversion:
        """A task file of SkyPilot or dstack as a job file. With `to` it is also written there; `force` overwrites.

        Raises SpecError for a file that is not theirs or cannot be read, UsageError where it cannot be written.
        """
        target = None if to is None else path_of(to)
        conversion = task_file.convert_file(path_of(path), target)
        if target is not None:
            task_file.write_conversion(conversion, target, force=force)
        return conversion
