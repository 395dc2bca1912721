"""Whether a control plane acts on this store. Must not know: how one is started."""

from __future__ import annotations

from orchestrator.engine.world import World
from orchestrator.services.views import ControlPlaneView


def control_plane(world: World) -> ControlPlaneView:
    """Who leads on this store. One on another machine counts as running: from here nobody can tell."""
    leader = world.store.leader()
    if leader is None or leader.alive is False:
        return ControlPlaneView(running=False, pid=None, host=None, since_ms=None)
    return ControlPlaneView(running=True, pid=leader.pid, host=leader.host, since_ms=leader.since_ms)
