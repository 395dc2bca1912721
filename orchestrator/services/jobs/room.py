"""Whether the limits of the installation and of projects have room for a plan now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from orchestrator.engine.inputs.rent_limits import Limits, limits_of
from orchestrator.engine.migration.rented import rented
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.services.shortfalls import FullLimit
from orchestrator.services.views import Decision
from orchestrator.store import Tx


def full_limits(
    installation: Installation, tx: Tx, new: Sequence[Job], decisions: Iterable[Decision], now_ms: int
) -> tuple[FullLimit, ...]:
    """The limits that do not allow the machines of all new jobs beside those that are rented now."""
    projects = {job.id: job.project for job in new}
    chosen = [each for each in decisions if each.job_id in projects and each.offer_id is not None]
    if not chosen:
        return ()
    config = installation.config
    now = rented(tx, now_ms, config, {each.offer_id or "" for each in chosen})
    limits = {each.name: each for project in sorted(set(projects.values())) for each in limits_of(config, project)}
    found: list[FullLimit] = []
    for each in limits.values():
        mine = [one for one in chosen if each.project in (None, projects[one.job_id])]
        used_machines, used_rate = now.within(each)
        rate = sum(one.nodes * now.prices.get(one.offer_id or "", 0) for one in mine)
        found += _full(each, (used_machines, sum(one.nodes for one in mine)), (used_rate, rate))
    return tuple(found)


def _full(limits: Limits, machines: tuple[int, int], rates: tuple[int, int]) -> Iterator[FullLimit]:
    kinds = (("max_instances", limits.machines, machines), ("max_usd_per_hour", limits.nano_usd, rates))
    for setting, most, (used, wanted) in kinds:
        if isfinite(most) and used + wanted > most:
            yield FullLimit(f"{limits.name}.{setting}", round(most), used, wanted)
