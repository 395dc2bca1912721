"""Waits until a job has ended or is paused, and its cost is final."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.errors import PartialFailure
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.jobs.current import job
from orchestrator.services.views import JobView

POLL_WALL_S = 0.3


def wait(
    installation: Installation,
    ref: str,
    *,
    timeout_s: float | None = None,
    progress: Callable[[JobView], None] | None = None,
) -> JobView:
    """Return the job once it has finished, failed, been cancelled or been paused with no pending resume; its `note`
    says why. By then its machines have ended and are booked, unless no control plane runs.

    `timeout_s` is in wall seconds. Raises NotFoundError, and PartialFailure after the timeout.
    """
    job_id = job(installation, ref).id
    give_up = None if timeout_s is None else installation.clock.monotonic_s() + timeout_s
    while True:
        ended = _ended(installation, job_id)
        settled = ended and (_settled(installation, job_id) or not control_plane(installation).running)
        view = job(installation, job_id)  # read again, with the last entries
        if progress is not None:
            progress(view)
        if settled:
            return view
        if give_up is not None and installation.clock.monotonic_s() >= give_up:
            with installation.store.read() as tx:
                name = tx.typed_name(job_id, view.name)
            if ended:
                raise PartialFailure(
                    f"{view.name} is {view.state}, but its last machine is not fully booked yet",
                    hint=f"wait for its final cost, then: tradewind report {name}",
                )
            raise PartialFailure(
                f"{view.name} is still {view.state} after {timeout_s:g} s",
                hint=control_plane(installation).to_go_on or f"it keeps running; see: tradewind status {name}",
            )
        installation.clock.sleep(POLL_WALL_S)


def _ended(installation: Installation, job_id: str) -> bool:
    with installation.store.read() as tx:
        state = tx.outline(job_id).state
        resuming = any(each.kind == "resume" and each.job_id == job_id for each in tx.open_commands())
    return state in TERMINAL or (state == "paused" and not resuming)


def _settled(installation: Installation, job_id: str) -> bool:
    """True if all machines of the job have ended and are booked."""
    with installation.store.read() as tx:
        unread: set[str] = set()
        unsettled = tx.runs(job_id, unreadable=lambda of_job, _: unread.add(of_job), unsettled=True)
        return not unsettled and not unread
