"""Health: the control plane, the sources of prices, flagged prices, quarantined jobs and machines that are up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.formats.csv_cells import table
from orchestrator.installation import Installation
from orchestrator.model import Run
from orchestrator.prices.views import PricedRegion, PriceStatus
from orchestrator.reports.incidents import Incident, incidents
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.control_plane.views import ControlPlaneView
from orchestrator.services.jobs.current import job_views
from orchestrator.services.prices.prices import status
from orchestrator.store import JobFilter, PollRecord, Quarantined

OPEN = ("queued", "starting", "running", "migrating", "pausing", "paused", "cancelling")
FAILED_POLLS = 10
LOOKED_AT = 300


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the installation. `machines` are the runs that have not ended; `failed_polls` the latest failed
    polls.

    `epoch` is the number of the control plane that leads (each new leader has a higher one), and `epoch_holder` its
    name; both are None if none leads. A run that has had no contact with the control plane for `suspect_after_s` real
    seconds is suspected to be lost; after `lease_s` it stops itself.
    """

    kind: ClassVar[str] = "health"

    at_ms: int
    control_plane: ControlPlaneView
    epoch: int | None
    epoch_holder: str | None
    lease_s: float
    suspect_after_s: float
    prices: PriceStatus
    failed_polls: tuple[PollRecord, ...]
    quarantined: tuple[Quarantined, ...]
    machines: tuple[Run, ...]
    incidents: tuple[Incident, ...]
    open_commands: int
    simulated: bool


def health(installation: Installation) -> Health:
    """The state of the control plane and of all background work."""
    prices = status(installation)
    leader = installation.store.leader()
    with installation.store.read() as tx:
        ids, _ = tx.job_ids_page(JobFilter(OPEN), "newest", 1000, 0)
        jobs = tx.outlines_of(ids)
        found = incidents(installation, tx, job_views(installation, tx, jobs, {}))
        failed = [each for each in tx.polls(None, LOOKED_AT) if each.error is not None][:FAILED_POLLS]
        return Health(
            at_ms=installation.clock.now_ms(),
            control_plane=control_plane(installation),
            epoch=None if leader is None else leader.epoch,
            epoch_holder=None if leader is None else leader.holder,
            lease_s=installation.config.lease_s,
            suspect_after_s=installation.config.suspect_after_s,
            prices=prices,
            failed_polls=tuple(failed),
            quarantined=tuple(tx.quarantined()),
            machines=tuple(tx.runs(live=True, unreadable=left_out)),
            incidents=found,
            open_commands=len(tx.open_commands()),
            simulated=installation.simulated,
        )


def health_csv(view: Health) -> str:
    """CSV with a row per source and region of prices."""
    columns = ("source", "region", "provider", "age_s", "offers", "failures", "error", "hint")
    rows = (_cells(each) for each in view.prices.regions)
    return table(columns, rows)


def _cells(of: PricedRegion) -> tuple[object, ...]:
    return of.source, of.region, of.provider, of.age_s, of.offers, of.failures, of.error, of.hint
