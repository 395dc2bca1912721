"""Whether a control plane runs on this store."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.installation import Installation
from orchestrator.services.control_plane.views import ControlPlaneView
from orchestrator.store import LeaderInfo
from providers.procfs import process_stopped

BACKGROUND = "--background"
"""Argument of the process that `tradewind up` starts: it logs to a file and exits if another control plane leads."""

DOWN = "down:"
"""Prefix of the leader name of `tradewind down`, which leads while it ends everything and is not a control plane."""


FULL_BYTES = 1_000_000
"""With less free space than this, most writes of a control plane fail."""


def control_plane(installation: Installation, *, watch: bool = False) -> ControlPlaneView:
    """The control plane of this store. One on another machine or from another boot counts as running, unless `watch`
    finds no heartbeat for some seconds."""
    leader = installation.store.leader(watch=watch)
    full = disk_full(installation.state_dir)
    if leader is None or not may_act(leader):
        return ControlPlaneView(running=False, pid=None, host=None, since_ms=None, disk_full=full)
    if leader.serves is not None:
        return ControlPlaneView(
            running=False, pid=None, host=None, since_ms=None, disk_full=full, copy_of=leader.serves
        )
    stopped = bool(leader.alive) and process_stopped(leader.pid)  # a pid is valid only where `alive` is known
    return ControlPlaneView(True, leader.pid, leader.host, leader.since_ms, stopped, full)


def disk_full(folder: Path) -> bool:
    """Whether the disk that holds this folder is full."""
    return shutil.disk_usage(folder).free < FULL_BYTES


def may_act(leader: LeaderInfo) -> bool:
    """True if the leader is a control plane and is not known to be dead."""
    return leader.alive is not False and not leader.holder.startswith(DOWN)
