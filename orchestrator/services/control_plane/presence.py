"""Whether a control plane acts on this store."""

from __future__ import annotations

from orchestrator.installation import Installation
from orchestrator.services.views import ControlPlaneView
from orchestrator.store import LeaderInfo

BACKGROUND = "--background"
"""Argument of the process that `tradewind up` starts: its log is a file, and it leaves where another one leads."""

DOWN = "down:"
"""How the name of a `tradewind down` begins, which leads while it ends everything: no control plane."""


def control_plane(installation: Installation, *, watch: bool = False) -> ControlPlaneView:
    """Who leads on this store. One on another machine (or of another boot of this one) counts as running, unless it is
    watched for some seconds and shows no life."""
    leader = installation.store.leader(watch=watch)
    if leader is None or not may_act(leader):
        return ControlPlaneView(running=False, pid=None, host=None, since_ms=None)
    return ControlPlaneView(running=True, pid=leader.pid, host=leader.host, since_ms=leader.since_ms)


def may_act(leader: LeaderInfo) -> bool:
    """Whether a leader is a control plane that lives, as far as can be told from here."""
    return leader.alive is not False and not leader.holder.startswith(DOWN)
