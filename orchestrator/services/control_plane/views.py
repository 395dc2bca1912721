"""The view of the control plane (see orchestrator.services.views)."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.config.store_url import STORE_FILE

IS_COPY = "this store is a copy of {}, and the control plane serves that one"


def use_original(file: str) -> str:
    """What to do with a copy of the store in `file`. The command to run there names the original's state folder, as far
    as its store is where one has it by default."""
    folder, name = os.path.split(file)
    there = "`tradewind down --keep-jobs` in the original's environment"
    if name == STORE_FILE:  # so written, it names another state folder than that of this command
        there = f"`tradewind --state-dir {shlex.quote(folder)} down --keep-jobs`"
    return (
        f"use the original; to replace it with this copy, run {there}, then `tradewind store adopt` and "
        "`tradewind up` for this copy"
    )


@dataclass(frozen=True, slots=True)
class ControlPlaneView:
    """The control plane. `since_ms` is None if none runs. One that is `stopped` (SIGSTOP, Ctrl-Z) does nothing until
    its process is continued, and none can store anything where the disk of the state folder is full. `ended`: by the
    `down` that tells it. `copy_of`: the file that the control plane serves, if this store is a copy of it."""

    kind: ClassVar[str] = "control-plane"

    running: bool
    pid: int | None
    host: str | None
    since_ms: int | None
    stopped: bool = False
    disk_full: bool = False
    ended: bool = False
    copy_of: str | None = None

    @property
    def unattended(self) -> tuple[str, str] | None:
        """Why jobs are neither watched, moved nor booked, and the command that changes it; None if they are."""
        if self.disk_full:
            return "the disk of the state folder is full", "tradewind doctor"
        if self.copy_of is not None:
            return IS_COPY.format(self.copy_of), use_original(self.copy_of)
        if not self.running:
            return "no control plane is running here", "tradewind up"
        if self.stopped:
            return f"the control plane (process {self.pid}) is stopped", f"kill -CONT {self.pid}"
        return None

    @property
    def to_go_on(self) -> str:
        """The same in one line; "" if jobs are attended to."""
        return "; to go on: ".join(self.unattended or ())
