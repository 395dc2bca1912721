"""Forecasts: what jobs that have not ended will still cost and take, or why that is unknown.

One decision over all of them, made with the function that plans them, so that `queue`, `status` and `report` say what
`plan` says. Where a job's speed has not been measured, a forecast says only that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from orchestrator.engine.inputs.snapshot import inputs, limits
from orchestrator.errors import UnreadableRowError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Job, Placement
from orchestrator.policy import NOT_MEASURED, decide
from orchestrator.services.views import JobForecast
from orchestrator.store import Tx

_PLACED = ("queued", "starting", "running", "migrating")


def forecasts(installation: Installation, tx: Tx, jobs: Iterable[Job]) -> Mapping[str, JobForecast | str]:
    """By job id the forecast as of now, or the reason why there is none."""
    found: dict[str, JobForecast | str] = {}
    quarantined = {each.job_id for each in tx.quarantined()}
    for job in jobs:
        if job.state in TERMINAL:
            found[job.id] = "it has ended"
        elif job.id in quarantined:
            found[job.id] = "it is in quarantine"
        else:
            found[job.id] = "its record cannot be read" if job.state in _PLACED else f"it is {job.state}"
    asked = [job_id for job_id, said in found.items() if said == "its record cannot be read"]
    try:
        found.update(_decided(installation, tx, asked))
    except UnreadableRowError:  # one of them cannot be read: decide for the others one by one
        for job_id in asked:
            with suppress(UnreadableRowError):
                found.update(_decided(installation, tx, [job_id]))
    return found


def _decided(installation: Installation, tx: Tx, job_ids: Sequence[str]) -> Mapping[str, JobForecast | str]:
    """Raises UnreadableRowError."""
    if not job_ids:
        return {}
    now = installation.clock.now_ms()
    seen = inputs(tx, now, installation.config, only=job_ids)
    plan = decide(seen.demands, seen.market, seen.perf, seen.running, limits=limits(installation.config))
    return {each.job_id: _forecast(each, now) for each in plan.placements}


def _forecast(placement: Placement, now_ms: int) -> JobForecast | str:
    if placement.evidence == "none":
        return NOT_MEASURED
    chosen = next((each for each in placement.alternatives if each.offer_id == placement.offer_id), None)
    if chosen is None:
        return placement.reason
    cost, cost_low, cost_high = placement.cost_nano_usd, chosen.cost_low_nano_usd, chosen.cost_high_nano_usd
    finish_ms, low_s, high_s = placement.finish_at_ms, chosen.duration_low_s, chosen.duration_high_s
    if cost is None or cost_low is None or cost_high is None or finish_ms is None or low_s is None or high_s is None:
        return "how many steps remain is not known yet"
    return JobForecast(
        now_ms, cost, cost_low, cost_high, (finish_ms - now_ms) / 1000, low_s, high_s, placement.evidence
    )
