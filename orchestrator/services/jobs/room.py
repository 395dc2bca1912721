"""Whether the limits of the installation and of projects have room for a plan now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from orchestrator.engine.inputs.rent_limits import Limits, limits_of
from orchestrator.engine.migration.rented import rented
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.services.shortfalls import FullLimit
from orchestrator.services.views import Decision
from orchestrator.store import Tx

ROUNDING = 1e-6
"""The rounding error, as a fraction of a machine, of shares in a joint plan."""


class Want(NamedTuple):
    """Machines that new jobs of a project need at an offer; a fraction if a job uses a machine for part of the time."""

    project: str
    offer_id: str
    machines: float


def wants_of(new: Sequence[Job], decisions: Iterable[Decision]) -> list[Want]:
    """The machines needed by new jobs that would start now, including standbys."""
    projects = {job.id: job.project for job in new}
    wants = []
    for each in decisions:
        if each.job_id in projects and each.offer_id is not None:
            wants.append(Want(projects[each.job_id], each.offer_id, each.nodes))
            if each.standby is not None:
                wants.append(Want(projects[each.job_id], each.standby.offer_id, 1))
    return wants


def full_limits(installation: Installation, tx: Tx, wants: Sequence[Want], now_ms: int) -> tuple[FullLimit, ...]:
    """The limits that do not allow all of these machines in addition to the currently rented ones."""
    if not wants:
        return ()
    config = installation.config
    now = rented(tx, now_ms, config, {each.offer_id for each in wants})
    projects = sorted({each.project for each in wants})
    limits = {each.name: each for project in projects for each in limits_of(config, project)}
    found: list[FullLimit] = []
    for each in limits.values():
        mine = [want for want in wants if each.project in (None, want.project)]
        machines = math.ceil(sum(want.machines for want in mine) - ROUNDING)
        rate = sum(want.machines * now.prices.get(want.offer_id, 0) for want in mine)
        used_machines, used_rate = now.within(each)
        found += _full(each, (used_machines, machines), (used_rate, round(rate)))
    return tuple(found)


def _full(limits: Limits, machines: tuple[int, int], rates: tuple[int, int]) -> Iterator[FullLimit]:
    kinds = (("max_instances", limits.machines, machines), ("max_usd_per_hour", limits.nano_usd, rates))
    for setting, most, (used, wanted) in kinds:
        if math.isfinite(most) and used + wanted > most:
            yield FullLimit(f"{limits.name}.{setting}", round(most), used, wanted)
