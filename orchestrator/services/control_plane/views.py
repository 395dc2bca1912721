"""The view of the control plane (see orchestrator.services.views)."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.config.store_url import STORE_FILE

IS_COPY = "this store is a copy of {}, and the control plane uses the original"


def use_original(file: str) -> str:
    """What to do with a copy of the store in `file`. The command to run there names the original's state folder, if its
    store is at the default path."""
    folder, name = os.path.split(file)
    there = "`tradewind down --keep-jobs` in the original's environment"
    if name == STORE_FILE:  # with an explicit state folder, as the command runs in this one
        there = f"`tradewind --state-dir {shlex.quote(folder)} down --keep-jobs`"
    return (
        f"use the original; to replace it with this copy, run {there}, then `tradewind store adopt` and "
        "`tradewind up` for this copy"
    )


@dataclass(frozen=True, slots=True)
class ControlPlaneView:
    """The control plane. `since_ms` is None if none runs. A `stopped` control plane (SIGSTOP, Ctrl-Z) does nothing
    until its process is continued; on a full disk of the state folder no control plane can store anything. `ended`: the
    `down` that returned this stopped it. `copy_of`: the file that the control plane uses, if this store is a copy of
    it."""

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
        """Why jobs are not watched or moved and costs not booked, and the command that changes it; None if they are."""
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
        return "; to continue: ".join(self.unattended or ())
