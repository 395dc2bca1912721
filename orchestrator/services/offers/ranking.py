"""Ranks offers for one job, as its plan does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.engine.inputs import snapshot
from orchestrator.errors import InfeasibleError
from orchestrator.installation import Installation
from orchestrator.market import Market
from orchestrator.model import Job, JobSpec, new_id
from orchestrator.perf import PerfBook, kind_name, kind_of
from orchestrator.policy import NOT_MEASURED, OVER_LIMITS, Demand, MoveLimits, prospects
from orchestrator.prices.collected import Collected
from orchestrator.services.catalog.market import catalogue_limits, catalogue_market
from orchestrator.services.offers.views import OfferRow
from providers.hardware import GPUS


@dataclass(frozen=True, slots=True)
class RankedForJob:
    """The rows that the job can use, best first, with the job's figures; `unfit` is the number of offers that each
    constraint excludes. `standings` are the sort keys of the rows: smaller is better."""

    rows: tuple[OfferRow, ...]
    throughput_source: str
    unfit: tuple[tuple[str, int], ...]
    standings: tuple[tuple[float, ...], ...]


def rank_for_job(
    spec: JobSpec,
    rows: Sequence[OfferRow],
    installation: Installation,
    now_ms: int,
    heard: Collected,
    *,
    at_ms: int | None = None,
) -> RankedForJob:
    """These offers with the figures and in the order of a plan for a new job of `spec`, made at `at_ms` of market time
    (None: now), which is `now_ms` in real time. Prices and costs are for as many machines as the job needs at once.

    Raises InfeasibleError, with the reason, if the job can use none of them.
    """
    wanted = {row.id: row for row in rows}
    at_ms = installation.clock.now_ms() if at_ms is None else at_ms
    job = Job(new_id("job", at_ms, random.Random(0)), spec, "", at_ms, "queued")
    markets: list[tuple[Market, MoveLimits, Demand]] = []
    with installation.store.read() as tx:
        own = snapshot.inputs(tx, at_ms, installation.config, extra=[job], only=[job.id])
    perf = own.perf
    if any(row.enabled for row in rows):
        markets.append((own.market, snapshot.limits(installation.config), own.demands[0]))
    if not all(row.enabled for row in rows):
        elsewhere = catalogue_market(now_ms, without=installation.providers, heard=heard)
        size_bytes = snapshot.profiled_bytes(perf, job)
        new = replace(job, submitted_at_ms=now_ms)
        there = snapshot.as_configured(Demand(new, spec.train.steps, checkpoint_bytes=size_bytes), installation.config)
        markets.append((elsewhere, catalogue_limits(installation.config), there))
    found: list[tuple[tuple[float, ...], OfferRow]] = []
    unfit: Counter[str] = Counter()
    for market, limits, demand in markets:
        usable, barred = prospects(demand, market, perf, limits=limits)
        unfit.update({_named(topic, demand): count for topic, count in barred.items()})
        for each in usable:
            row = wanted.get(each.offer_id)
            if row is not None:
                price = row.nano_usd_per_hour
                figures = replace(
                    row,
                    nano_usd_per_hour=None if price is None else demand.nodes * price,
                    steps_per_s=each.steps_per_s,
                    nano_usd_per_step=each.nano_usd_per_step,
                    duration_s=each.duration_s,
                    cost_nano_usd=each.cost_nano_usd,
                    cost_low_nano_usd=each.cost_low_nano_usd,
                    cost_high_nano_usd=each.cost_high_nano_usd,
                    relative_speed=each.relative_speed,
                )
                found.append((each.standing, figures))
    if not found:
        raise InfeasibleError(f"none of the {len(rows)} offers fits {spec.name}: {_lack(spec, rows, unfit, perf)}")
    found.sort(key=lambda each: (each[0], each[1].id))
    best = found[0][1]
    source = NOT_MEASURED
    if perf.evidence(job, [kind_of(best.gpu, best.gpu_count)]) != "none":
        source = perf.estimate_kind(job, best.gpu, best.gpu_count).provenance
    standings, ranked = zip(*found, strict=True)
    if spec.resources.nodes > 1:
        source = f"{source}; prices and costs are for {spec.resources.nodes} machines"
    return RankedForJob(ranked, source, tuple(unfit.most_common()), standings)


def _named(topic: str, demand: Demand) -> str:
    """The constraint that excludes offers; for a limit, with its setting."""
    return f"{topic} ({demand.rent.passed_by(demand.nodes)})" if topic == OVER_LIMITS else topic


def _lack(spec: JobSpec, rows: Sequence[OfferRow], unfit: Counter[str], perf: PerfBook) -> str:
    wants, work = spec.resources.gpu_memory_bytes, perf.work(Job("new", spec, "", 0, "queued"))
    allowed = {request.name for request in spec.resources.gpus}
    has = [GPUS[row.gpu].memory_bytes for row in rows if row.gpu is not None and (not allowed or row.gpu in allowed)]
    largest = max(has, default=0)
    if work is not None:
        kinds = {kind_of(row.gpu, row.gpu_count) for row in rows if not allowed or row.gpu in allowed}
        lacking, gpu, count = min(
            ((work.shortfall_bytes(kind, spec.sharding), *kind) for kind in kinds if kind[0] is not None),
            default=(0, None, 0),
        )
        if lacking and gpu is not None:
            takes, memory = work.memory_bytes(count, spec.sharding) / 1e9, GPUS[gpu].memory_bytes / 1e9
            return (
                f"a step needs {takes:.3g} GB per GPU (profiled); the closest, {kind_name((gpu, count))}, has "
                f"{memory:g} GB, {lacking / 1e9:.3g} GB less"
            )
    if wants is not None and largest < wants[0]:
        short = (wants[0] - largest) / 1e9
        return f"it requires GPUs of {wants[0] / 1e9:g} GB; the largest has {largest / 1e9:g} GB, {short:g} GB less"
    return ", ".join(f"{count} fail on {topic}" for topic, count in unfit.most_common(3)) or "no price is known"
