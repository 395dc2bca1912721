"""Forecasts: the remaining cost and time of jobs that have not ended, or why they are unknown.

The forecast of the control plane's last decision about a job is used for FRESH_S, and for at most FRESH_SHARE of its
remaining time, which is short for a job that is nearly done. The other jobs are decided together, with the function
that plans them, so that `queue`, `status` and `report` agree with `plan`. If a job's speed has not been measured, there
is only the reason, no forecast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from orchestrator.engine.inputs.snapshot import inputs, limits
from orchestrator.errors import UnreadableRowError
from orchestrator.installation import Installation
from orchestrator.model import START_UNKNOWN, TERMINAL, Job, JobForecast, Placement
from orchestrator.policy import decide, expected
from orchestrator.store import Tx

FRESH_S, FRESH_WALL_S, FRESH_SHARE = 900.0, 15.0, 0.1
"""How long a forecast is used: in market seconds; in real seconds, if the market's clock makes that longer; and as a
share of its remaining time. A price change, a loss or a command leads to a new decision anyway."""
_UNREADABLE = "its record cannot be read"
_UNDECIDED = "the control plane has no recent decision about it"
_STARTING = "its machine is starting"
_PLACED = ("queued", "starting", "running", "migrating")


def forecasts(installation: Installation, tx: Tx, jobs: Iterable[Job]) -> Mapping[str, JobForecast | str]:
    """The current forecast of each job, or the reason why there is none, by job id."""
    found = dict(fresh_forecasts(installation, tx, jobs))
    asked = [job_id for job_id, said in found.items() if said == _UNDECIDED]
    found.update(dict.fromkeys(asked, _UNREADABLE))
    try:
        found.update(_decided(installation, tx, asked))
    except UnreadableRowError:  # one job cannot be read: decide each of the others separately
        for job_id in asked:
            with suppress(UnreadableRowError):
                found.update(_decided(installation, tx, [job_id]))
    return found


def fresh_forecasts(installation: Installation, tx: Tx, jobs: Iterable[Job]) -> Mapping[str, JobForecast | str]:
    """The same without new decisions, which take long for many jobs: forecasts of old decisions are left out."""
    now_ms, factor = installation.clock.now_ms(), installation.clock.factor
    found = dict(_recorded(tx, jobs, now_ms - round(1000 * max(FRESH_S, FRESH_WALL_S * factor))))
    found.update((job_id, _UNDECIDED) for job_id, said in found.items() if _outdated(said, now_ms))
    asked = [job_id for job_id, said in found.items() if said == _UNDECIDED]
    # only the control plane knows what it waits for; this applies until its next decision
    found.update({each: said for each, said in tx.job_forecasts(asked, 0).items() if said == START_UNKNOWN})
    return found


def _outdated(said: JobForecast | str, now_ms: int) -> bool:
    if not isinstance(said, JobForecast):
        return False
    return (
        said.at_ms > now_ms or (now_ms - said.at_ms) / 1000 > FRESH_SHARE * said.duration_s
    )  # the first: a clock was ahead


def _recorded(tx: Tx, jobs: Iterable[Job], since_ms: int) -> Mapping[str, JobForecast | str]:
    """The forecast of the control plane's last decision about each job, if it was made at `since_ms` or later, or the
    reason why there is none, by job id."""
    found: dict[str, JobForecast | str] = {}
    quarantined = {each.job_id for each in tx.quarantined()}
    for job in jobs:
        if job.state in TERMINAL:
            found[job.id] = "it has ended"
        elif job.id in quarantined:
            found[job.id] = "it is in quarantine"
        else:
            found[job.id] = _UNDECIDED if job.state in _PLACED else f"it is {job.state}"
    found.update(tx.job_forecasts([job_id for job_id, said in found.items() if said == _UNDECIDED], since_ms))
    return found


def _decided(installation: Installation, tx: Tx, job_ids: Sequence[str]) -> Mapping[str, JobForecast | str]:
    """Raises UnreadableRowError."""
    if not job_ids:
        return {}
    now = installation.clock.now_ms()
    seen = inputs(tx, now, installation.config, only=job_ids)
    plan = decide(seen.demands, seen.market, seen.perf, seen.running, limits=limits(installation.config))
    starting = {each.job.id for each in seen.demands if each.job.state == "starting"}
    return {each.job_id: _expected(each, now, starting=each.job_id in starting) for each in plan.placements}


def _expected(placement: Placement, now_ms: int, *, starting: bool) -> JobForecast | str:
    """The forecast of a new decision. A job whose machine is starting has a place even if the decision finds no room
    for it: its own machine is one of those in use."""
    said = expected(placement, now_ms)
    return _STARTING if starting and placement.action == "wait" and said == placement.reason else said
