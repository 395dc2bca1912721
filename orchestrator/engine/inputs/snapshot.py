"""Snapshot: from the store to the inputs of `decide`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from orchestrator.config import Config
from orchestrator.engine.inputs import latencies, price_courses, priors
from orchestrator.engine.migration import in_vain
from orchestrator.engine.migration.intent import under_way
from orchestrator.errors import RowError
from orchestrator.market import AvailabilityKind, AvailabilityPoint, Location, Market
from orchestrator.model import VOLUNTARY, Job, JobState, Migration, Run
from orchestrator.perf import Observation, PerfBook, Program, program_of
from orchestrator.policy import Demand, MoveLimits, Running
from orchestrator.store import Tx
from providers.offer import location_of

DAY_MS = 86_400_000
AVAILABILITY_WINDOW_MS = 30 * DAY_MS
LIKE_JOBS = 50  # the jobs measured last, whose programs are looked at for what they tell of other jobs
NO_LONGER_SOLD = "its provider no longer names it"

_WANT_A_PLACE: tuple[JobState, ...] = ("queued", "starting", "running", "migrating")


def limits(config: Config) -> MoveLimits:
    """The limits on voluntary moves."""
    return MoveLimits(
        min_dwell_s=config.policy.min_dwell_s, max_migrations_per_day=config.policy.max_migrations_per_day
    )


@dataclass(frozen=True)
class Inputs:
    """Everything `decide` may know at one instant."""

    market: Market
    perf: PerfBook
    demands: tuple[Demand, ...]
    running: Mapping[str, Running]


def inputs(
    tx: Tx,
    now_ms: int,
    config: Config,
    *,
    extra: Sequence[Job] = (),
    only: Sequence[str] | None = None,
    with_notice: frozenset[str] = frozenset(),
) -> Inputs:
    """The inputs for all jobs that want a place, or for `only` those; `extra` are jobs that are not submitted yet.

    Jobs in `with_notice` lose their machine soon, so that staying is no option for them.
    """
    waiting = tx.jobs(states=_WANT_A_PLACE, unreadable=left_out)
    jobs = [job for job in (*waiting, *extra) if only is None or job.id in only]
    gaps = latencies.handovers(tx, config)
    running: dict[str, Running] = {}
    demands = []
    for job in jobs:
        known = all(job.id != other.id for other in extra)
        runs = tx.runs(job_id=job.id) if known else []
        save_s, gap = latencies.save_s(config, runs), gaps.at.get(job.id, gaps.usual)
        demands.append(_demand(tx, job, runs, known, now_ms, save_s=save_s, gap_s=gap.value))
        current = current_run(runs)
        if current is not None:
            running[job.id] = _running(tx, job, current, now_ms, job.id in with_notice)
    used = [each.offer_id for each in running.values()]
    return Inputs(market(tx, now_ms, config, used), perf(tx, now_ms, [job.id for job in jobs]), tuple(demands), running)


def left_out(_job_id: str, _error: RowError) -> None:
    """What cannot be read of a job is left to it alone: engine.control tells of it."""


def current_run(runs: Sequence[Run]) -> Run | None:
    """The run that holds the job's newest generation past cutover, if it is alive."""
    alive = [run for run in runs if run.end is None and run.state in ("training", "quiesced")]
    return max(alive, key=lambda run: run.generation, default=None)


def checkpoint_at(runs: Sequence[Run]) -> Location | None:
    """Where the newest checkpoint lies: where the job trained last. None: it never did."""
    trained = [run for run in runs if run.training_from_ms is not None]
    newest = max(trained, key=lambda run: run.generation, default=None)
    return None if newest is None else location_of(newest.offer_id)


def market(tx: Tx, now_ms: int, config: Config, used: Collection[str] = ()) -> Market:
    """What is known of the market at `now_ms`. `used` are ids of offers where jobs run: they are in it, to be compared
    with, also when nobody sells them any more."""
    since = now_ms - AVAILABILITY_WINDOW_MS
    offers = tx.offers(config.providers.enabled)  # what others ask is for people: nothing can be launched there
    listed = {offer.id for offer in offers}
    withdrawn = [offer for name in sorted({*used} - listed) if (offer := tx.offer(name)) is not None]
    offers += withdrawn
    starts = latencies.starts(tx, config, offers, left_out)
    gone = price_courses.learned(tx, offers, now_ms)
    return Market.as_of(
        now_ms,
        offers=offers,
        prices=tx.payable_as_of(now_ms),
        doubts={**tx.flagged_as_of(now_ms), **{offer.id: NO_LONGER_SOLD for offer in withdrawn}},
        availability=[
            AvailabilityPoint(row.offer_id, row.at_ms, cast("AvailabilityKind", row.kind))
            for row in tx.availability(since, now_ms)
        ],
        polls=[((each.provider, each.region, each.spot), each.until_ms) for each in tx.polled()],
        startup_s={name: known.usual for name, known in starts.items()},
        starts={place: each for known in starts.values() for place, each in known.at.items()},
        courses=gone.courses,
        levels=gone.levels,
        priors=priors.hazard_priors(offers, tx.risks_as_of(now_ms)),
        tariff=priors.tariff(offers),
    )


def perf(tx: Tx, now_ms: int, job_ids: Collection[str] | None = None) -> PerfBook:
    """The throughputs that were measured up to `now_ms`: of all jobs, or of these and the LIKE_JOBS measured last.

    A decision names its jobs, so that it costs the same however many jobs there ever were.
    """
    newest = tx.measured_last(LIKE_JOBS)
    points = tx.perf(None if job_ids is None else {*job_ids, *newest})
    return PerfBook.as_of(
        now_ms,
        [Observation(row.job_id, row.gpu, row.gpu_count, row.steps_per_s, row.steps, row.at_ms) for row in points],
        programs=_programs(tx, newest),
        works=tx.works(),
        tables=tx.rates(),
    )


def _programs(tx: Tx, job_ids: Collection[str]) -> dict[str, Program]:
    programs = {}
    for job_id in job_ids:
        with suppress(RowError):  # one of many that this decision could learn from
            programs[job_id] = program_of(tx.job(job_id).spec.train)
    return programs


def _demand(tx: Tx, job: Job, runs: Sequence[Run], known: bool, now_ms: int, *, save_s: float, gap_s: float) -> Demand:
    total = job.spec.train.steps
    if not known:
        return Demand(job=job, total_steps=total, checkpoint_s=save_s, handover_s=gap_s)
    facts = tx.job_facts(job.id)
    return Demand(
        job=job,
        total_steps=total if facts.total_steps is None else facts.total_steps,
        done_steps=max((run.last_step for run in runs), default=0),
        spent_nano_usd=tx.total_nano_usd(job_id=job.id),
        checkpoint_bytes=facts.checkpoint_bytes or 0,
        checkpoint_s=save_s,
        handover_s=gap_s,
        checkpoint_at=checkpoint_at(runs),
        excluded=in_vain.excluded(tx, job.id, now_ms),
    )


def _running(tx: Tx, job: Job, run: Run, now_ms: int, leaving: bool) -> Running:
    # a move that was given up when it had its machine already was paid for like any other
    rented = {each.id for each in tx.runs(job_id=job.id) if each.instance_id is not None}
    moves: list[Migration] = [
        migration
        for migration in tx.migrations(job_id=job.id)
        if migration.reason in VOLUNTARY and migration.target_run_id in rented
    ]
    came_by = next((each.reason for each in tx.migrations(job_id=job.id) if each.target_run_id == run.id), None)
    return Running(
        offer_id=run.offer_id,
        since_ms=run.training_from_ms or run.created_at_ms,
        last_migration_ms=max((migration.step_at_ms for migration in moves), default=None),
        migrations_today=sum(1 for migration in moves if migration.step_at_ms > now_ms - DAY_MS),
        migrating=under_way(tx, job.id),
        leaving=leaving,
        came_by=came_by or "first placement",
    )
