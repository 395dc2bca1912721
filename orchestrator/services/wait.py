"""Wait: until a job ends. Must not know: what ends it."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.engine.world import World
from orchestrator.errors import PartialFailure
from orchestrator.model import TERMINAL
from orchestrator.services.jobs import job
from orchestrator.services.views import JobView

POLL_WALL_S = 0.3


def wait(
    world: World,
    ref: str,
    *,
    timeout_s: float | None = None,
    progress: Callable[[JobView], None] | None = None,
) -> JobView:
    """The job once it has finished, failed or been cancelled. `timeout_s` is in wall seconds.

    Raises NotFoundError, and PartialFailure when the time is over.
    """
    job_id = job(world, ref).id
    give_up = None if timeout_s is None else world.clock.monotonic_s() + timeout_s
    while True:
        view = job(world, job_id)
        if progress is not None:
            progress(view)
        if view.state in TERMINAL:
            return view
        if give_up is not None and world.clock.monotonic_s() >= give_up:
            raise PartialFailure(
                f"{view.name} is still {view.state} after {timeout_s:g} s",
                hint=f"it goes on; see: tradewind status {view.name}",
            )
        world.clock.sleep(POLL_WALL_S)
