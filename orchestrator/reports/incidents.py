"""Incidents: what needs attention now, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.installation import Installation
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.views import JobView
from orchestrator.store import Tx

STALE_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Incident:
    """A problem: `what` in one sentence, the `remedy`, and `job_id` if it concerns a job."""

    level: Literal["error", "warning"]
    what: str
    remedy: str
    job_id: str | None = None


def incidents(installation: Installation, tx: Tx, open_jobs: Sequence[JobView]) -> tuple[Incident, ...]:
    """The current incidents, most serious first."""
    found = [*_control_plane(installation, tx, open_jobs), *_jobs(tx, open_jobs), *_prices(installation, tx)]
    return tuple(sorted(found, key=lambda each: each.level != "error"))


def _control_plane(installation: Installation, tx: Tx, open_jobs: Sequence[JobView]) -> Iterator[Incident]:
    unattended = control_plane(installation).unattended
    if open_jobs and unattended is not None:
        why, remedy = unattended
        text = f"{why[0].upper()}{why[1:]}: running jobs keep training, but jobs are not moved and costs not booked."
        if newest := tx.events(limit=1, newest_first=True):
            age_h = max(0, installation.clock.now_ms() - newest[0].at_ms) / 3_600_000
            text += f" The newest event is {age_h:.1f} hours old."
        yield Incident("error", text, remedy)


def _jobs(tx: Tx, open_jobs: Sequence[JobView]) -> Iterator[Incident]:
    for job in open_jobs:
        if job.quarantine is None and not job.warnings:
            continue
        typed = tx.typed_name(job.id, job.name)
        if job.quarantine is not None:
            yield Incident(
                "error", f"{job.name} is in quarantine: {job.quarantine}", f"tradewind resume {typed}", job.id
            )
        for warning in job.warnings:
            yield Incident("warning", f"{job.name}: {warning}", f"tradewind logs {typed}", job.id)


def _prices(installation: Installation, tx: Tx) -> Iterator[Incident]:
    now = installation.clock.now_ms()
    for state in tx.poll_states():
        place = f"{state.source} {state.region}".strip()
        if state.error is not None:
            last = state.good_finished_ms
            known = "never" if last is None else f"{max(0, now - last) / 3_600_000:.1f} hours ago"
            text = f"Prices of {place} cannot be read: {state.error}. They were last confirmed {known}."
            yield Incident("warning", text, state.hint or "tradewind prices status")
