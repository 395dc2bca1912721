"""Session: the state that the namespaces of one Client share: the caller, and the installation, opened once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

from orchestrator.client.paths import path_of
from orchestrator.config import Config
from orchestrator.errors import SpecError, UsageError
from orchestrator.services.caller import Caller

if TYPE_CHECKING:
    from orchestrator.client.handover import Handover
    from orchestrator.installation import Installation
    from orchestrator.model import JobSpec

    Work = JobSpec | Mapping[str, Any] | str | os.PathLike[str]
    """A job: a spec, a mapping with the fields of a job file, or the path of a job file."""


class Session:
    """Any thread may run transactions; actions that must happen once hold a lock."""

    def __init__(self, config: Config, caller: Caller, installation: Installation | None = None) -> None:
        self.config = config
        self.caller = caller
        self._lock = RLock()
        self._installation = installation
        self._handover: Handover | None = None

    @property
    def installation(self) -> Installation:
        """Opened by the first thread that asks; others wait. Raises StoreError, SpecError, ProviderFailure."""
        with self._lock:
            if self._installation is None:
                from orchestrator.installation import open_installation

                self._installation = open_installation(self.config)
            return self._installation

    @property
    def handover(self) -> Handover:
        """The handover, which prepares new jobs before they are stored."""
        with self._lock:
            if self._handover is None:
                from orchestrator.client.handover import Handover

                self._handover = Handover(self.config.state_dir)
            return self._handover

    def close(self) -> None:
        """Close the installation. Transactions in progress in other threads can still finish."""
        with self._lock:
            if self._installation is not None:
                self._installation.close()
                self._installation = None

    @contextmanager
    def closed(self) -> Iterator[None]:
        """The installation is closed in this block; other threads that need it wait for the end of the block."""
        with self._lock:
            self.close()
            yield

    def load(self, work: Work, *, submitted_before: bool = False) -> JobSpec:
        """The job of a file or mapping. `submitted_before`: it may have been submitted before its deadline passed, so a
        past deadline is allowed. Raises SpecError with every problem, each with its field; UsageError for anything
        else, also for a group file."""
        from orchestrator.jobfile import job_from_mapping, load_job
        from orchestrator.jobfile.group import is_group_file
        from orchestrator.model import JobSpec

        if isinstance(work, JobSpec):
            return work
        if not isinstance(work, Mapping | str | os.PathLike):
            raise UsageError(
                f"a {type(work).__name__} is not a job", hint="give the path of a job file, a mapping or a JobSpec"
            )
        now_ms = None if submitted_before else self.installation.clock.now_ms()
        if isinstance(work, Mapping):
            return job_from_mapping(work, now_ms=now_ms, submitting=True, project=self.caller.project)
        path = path_of(work)
        try:
            return load_job(path, now_ms=now_ms, submitting=True, project=self.caller.project)
        except SpecError as error:
            if not is_group_file(path):
                raise
            hint = "give a job file; `plan` and `submit` of client.groups take group files"
            raise UsageError(f"{path} is a group file, but a single job is expected", hint=hint) from error
