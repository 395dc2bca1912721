"""client.job_files: reads and checks job files and mappings, and converts task files of other tools."""

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
    """For job files that are not submitted yet."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def load(self, work: Work) -> JobSpec:
        """The spec of a job file, or of a mapping with the same fields, whose paths are relative to the working folder.
        A job without a project gets the caller's. Raises SpecError with every problem in it, each with its field."""
        return self._session.load(work)

    def check_entry(self, work: Work) -> str | None:
        """Load the job's function here, in a child process, if this is the only way to check that `train.args` fit it.

        Returns why it could not be checked, or None if it is valid. Raises SpecError with the traceback, UsageError if
        the environment lacks a secret of the job.
        """
        return self._session.handover.check(self._session.load(work))

    def convert(self, path: str | Path, to: str | Path | None = None, *, force: bool = False) -> Conversion:
        """Convert a task file of SkyPilot or dstack to a job file. With `to` it is also written there; `force`
        overwrites.

        Raises SpecError if the file is not a task file or cannot be read, UsageError if `to` cannot be written.
        """
        target = None if to is None else path_of(to)
        conversion = task_file.convert_file(path_of(path), target)
        if target is not None:
            task_file.write_conversion(conversion, target, force=force)
        return conversion
