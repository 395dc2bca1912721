"""Handover: prepares new jobs before they are stored. It checks their functions and hands over their secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

from orchestrator.model import Job, JobSpec
from orchestrator.services.secrets.socket import PATIENCE_S, hand_over
from orchestrator.services.secrets.submission import from_environment
from orchestrator.services.speed.entry_check import check_entry


class Handover:
    """Secrets that no control plane has taken yet are kept for the next one that starts."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._lock = Lock()
        self._checked: list[JobSpec] = []  # their functions load here, or this machine cannot check it
        self._secrets: dict[str, Mapping[str, str]] = {}  # by job

    def check(self, spec: JobSpec) -> str | None:
        """Like `check_entry`, once for each spec."""
        with self._lock:
            if spec in self._checked:
                return None
        why = check_entry(spec)  # in a child process, for up to a minute, outside the lock
        with self._lock:
            self._checked.append(spec)
        return why

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Call this before the jobs are stored, so that no job has to wait for its secrets. Raises SpecError,
        UsageError."""
        for job in jobs:
            self.check(job.spec)
        with self._lock:
            self._secrets |= from_environment(jobs)
        self._give(patience_s=0.0)

    def give_kept(self) -> None:
        """Give the kept secrets to a control plane that has just started."""
        self._give(patience_s=PATIENCE_S)

    def _give(self, *, patience_s: float) -> None:
        with self._lock:
            if self._secrets and hand_over(self._state_dir, self._secrets, patience_s=patience_s):
                self._secrets = {}
