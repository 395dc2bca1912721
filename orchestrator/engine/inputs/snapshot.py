"""Snapshot: reads the inputs of `decide` from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from orchestrator.config import Config
from orchestrator.engine.billing.machine_cost import job_cost_nano_usd
from orchestrator.engine.inputs import latencies
from orchestrator.engine.inputs.bucket_places import bucket_region
from orchestrator.engine.inputs.followers import followers
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.engine.inputs.rent_limits import rent_limits
from orchestrator.engine.inputs.reserves import reserve_of
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.engine.migration import wasted
from orchestrator.engine.migration.intent import may_change_place
from orchestrator.errors import RowError
from orchestrator.market import Location, Market
from orchestrator.model import VOLUNTARY, Event, Job, JobState, Migration, Run, Step, steps_done
from orchestrator.perf import PerfBook
from orchestrator.policy import Demand, MoveLimits, Running
from orchestrator.policy.demand import Reserve
from orchestrator.policy.groups.following import due_for_what_follows, hurrying
from orchestrator.policy.projects import priority_of
from orchestrator.store import JobFacts, Tx
from providers.offer import location_of

DAY_MS = 86_400_000
LIKE_JOBS = 50  # the jobs measured last, whose programs are used to predict other jobs

_WANT_A_PLACE: tuple[JobState, ...] = ("queued", "starting", "running", "migrating")


def limits(config: Config) -> MoveLimits:
    """The limits on voluntary moves."""
    return MoveLimits(
        min_dwell_s=config.policy.min_dwell_s, max_migrations_per_day=config.policy.max_migrations_per_day
    )


@dataclass(frozen=True)
class Inputs:
    """Everything that `decide` may use at one time."""

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
    also: tuple[JobState, ...] = (),
    with_notice: frozenset[str] = frozenset(),
    markets: MarketReader | None = None,
    speeds: SpeedReader | None = None,
    used: Collection[str] = (),
    besides: str | None = None,
    together: bool = False,
) -> Inputs:
    """The inputs for all jobs that need a machine, or only for the ids in `only`, including jobs in the states `also`;
    `extra` are jobs not submitted yet. A job must finish early enough for the jobs after it to meet their deadlines,
    unless they are planned `together`: such a plan knows their order.

    Jobs in `with_notice` lose their machine soon, so they cannot stay. `markets` and `speeds` cache earlier reads;
    without them, everything is read again. The market includes the offers `used`, and those on which these jobs run,
    even if they are no longer listed; machines requested for the run `besides` take no quota. Times are market ms.
    """
    if only is None:
        waiting = tx.jobs(states=_WANT_A_PLACE, unreadable=left_out)
    else:
        states = (*_WANT_A_PLACE, *also)
        waiting = [job for job in tx.jobs_of(only, unreadable=left_out) if job.state in states]
    jobs = [job for job in (*waiting, *extra) if only is None or job.id in only]
    follow, deciding = [] if together else followers(tx, jobs, left_out), {job.id for job in jobs}
    later = [job for job in follow if job.id not in deciding]
    gaps, wall_s_per_byte = latencies.handovers(tx, config), latencies.save_wall_s_per_byte(tx)
    past = _pasts(tx, {job.id for job in jobs} - {job.id for job in extra}) | _readable_pasts(tx, later)
    later = [job for job in later if job.id in past]
    book = perf(tx, now_ms, [job.id for job in (*jobs, *later)], speeds)
    running: dict[str, Running] = {}
    demands = []
    for job in (*jobs, *later):
        known = past.get(job.id, _Past())
        if job.spec.budget_nano_usd is not None and job.id in deciding:
            open_books = [run for run in known.runs if run.billed_to_ms is None]
            known = replace(known, spent_nano_usd=job_cost_nano_usd(tx, job.id, open_books, now_ms))
        size_bytes = known.facts.checkpoint_bytes or profiled_bytes(book, job)
        save_s = latencies.save_s(config, known.runs, size_bytes, wall_s_per_byte)
        gap_s = latencies.handover_s(gaps, job.id, save_s)
        setup_s = latencies.setup_s(config, job, known.runs)
        reserve = reserve_of(known.runs, config.providers.clock_factor)
        demand = _demand(
            job, known, now_ms, save_s=save_s, gap_s=gap_s, setup_s=setup_s, size_bytes=size_bytes, reserve=reserve
        )
        if job.spec.budget_nano_usd is not None and demand.started:  # only then does a decision name a command
            demand = replace(demand, typed_name=tx.typed_name(job.id, job.name))
        demands.append(as_configured(demand, config))
        current = current_run(known.runs)
        if current is not None:
            running[job.id] = _running(known, current, now_ms, job.id in with_notice)
    used = {*used, *(each.offer_id for each in running.values())}
    seen = (MarketReader() if markets is None else markets).read(tx, now_ms, config, used, besides)
    if follow:
        own, others = demands[: len(jobs)], demands[len(jobs) :]
        due = due_for_what_follows(own, others, seen, book, running, limits(config))
        demands = [hurrying(each, due[each.job.id]) if each.job.id in due else each for each in own]
    return Inputs(seen, book, tuple(demands), running)


def as_configured(demand: Demand, config: Config) -> Demand:
    """The demand completed from the settings: where its checkpoints are kept, what it may rent, and the priority and
    weight of its project (the weight only if projects have weights)."""
    root = str(config.store_root)
    projects, own = config.projects, config.projects.of(demand.job.project)
    return replace(
        demand,
        store_root=root,
        bucket_region=bucket_region(config, demand.job.spec.checkpoint.to or root),
        priority=priority_of(own.priority, projects.highest_priority, demand.idle_s),
        project_weight=own.weight if projects.tables else None,
        rent=rent_limits(config, demand.job.project),
    )


def profiled_bytes(book: PerfBook, job: Job) -> int:
    """The size of a job's checkpoints according to its profile; 0 without one."""
    work = book.work(job)
    return 0 if work is None else work.checkpoint_bytes


def left_out(_job_id: str, _error: RowError) -> None:
    """Skip unreadable rows: engine.control reports them."""


def current_run(runs: Sequence[Run]) -> Run | None:
    """The job's running run with the newest generation past cutover; None if there is none."""
    alive = [run for run in runs if run.end is None and run.state in ("training", "quiesced")]
    return max(alive, key=lambda run: run.generation, default=None)


def checkpoint_at(runs: Sequence[Run]) -> Location | None:
    """The place of the newest checkpoint: where the job trained last; None if it never trained."""
    trained = [run for run in runs if run.training_from_ms is not None]
    newest = max(trained, key=lambda run: run.generation, default=None)
    return None if newest is None else location_of(newest.offer_id)


def market(tx: Tx, now_ms: int, config: Config, used: Collection[str] = ()) -> Market:
    """The known market at `now_ms`, read without a cache: see MarketReader."""
    return MarketReader().read(tx, now_ms, config, used)


def perf(tx: Tx, now_ms: int, job_ids: Collection[str] | None = None, speeds: SpeedReader | None = None) -> PerfBook:
    """The throughputs measured up to `now_ms`: of all jobs, or of `job_ids` and the LIKE_JOBS measured last.

    A decision names its jobs, so its cost does not grow with the number of past jobs.
    """
    newest = tx.measured_last(LIKE_JOBS)
    wanted = None if job_ids is None else {*job_ids, *newest}
    reader = SpeedReader() if speeds is None else speeds
    return PerfBook.of(
        reader.read(tx, wanted, now_ms),
        programs=reader.programs(tx, newest),
        works=tx.works(),
        tables=tx.rates(),
    )


@dataclass(frozen=True)
class _Past:
    """The stored facts about a job; empty if it is not submitted yet. `spent_nano_usd` is the booked amount or, with a
    budget, everything that counts against it. `events` are of the kinds wasted.EXCLUDING."""

    runs: Sequence[Run] = ()
    facts: JobFacts = field(default_factory=JobFacts)
    spent_nano_usd: int = 0
    migrations: Sequence[Migration] = ()
    events: Sequence[Event] = ()


def _pasts(tx: Tx, job_ids: Collection[str]) -> dict[str, _Past]:
    """By job id. Raises RowError."""
    runs, migrations = tx.runs_of(job_ids), tx.migrations_of(job_ids)
    facts, events = tx.job_facts_of(job_ids), tx.events_of(job_ids, wasted.EXCLUDING)
    spent: Counter[str] = Counter()
    for each in tx.ledger_sums(job_ids):
        spent[each.job_id] += each.amount_nano_usd
    return {name: _Past(runs[name], facts[name], spent[name], migrations[name], events[name]) for name in facts}


def _readable_pasts(tx: Tx, jobs: Sequence[Job]) -> dict[str, _Past]:
    """The same for the jobs whose rows can be read: damage to one job must not keep another from getting a machine."""
    if not jobs:
        return {}
    try:
        return _pasts(tx, {job.id for job in jobs})
    except RowError:
        found: dict[str, _Past] = {}
        for job in jobs:
            with suppress(RowError):
                found |= _pasts(tx, {job.id})
        return found


def _demand(
    job: Job,
    past: _Past,
    now_ms: int,
    *,
    save_s: float,
    gap_s: float,
    setup_s: float,
    size_bytes: int,
    reserve: Reserve,
) -> Demand:
    total = past.facts.total_steps
    return Demand(
        job=job,
        total_steps=job.spec.train.steps if total is None else total,
        done_steps=steps_done(past.runs),
        spent_nano_usd=past.spent_nano_usd,
        checkpoint_s=save_s,
        handover_s=gap_s,
        checkpoint_at=checkpoint_at(past.runs),
        setup_s=setup_s,
        idle_s=_idle_s(job, past.runs, past.events, now_ms),
        excluded=wasted.excluded(past.events, now_ms),
        checkpoint_bytes=size_bytes,
        reserve=reserve,
    )


def idle_s(tx: Tx, jobs: Collection[Job], now_ms: int) -> Mapping[str, float]:
    """For how many market seconds each of these jobs has not been running, by job id. Raises RowError."""
    ids = [job.id for job in jobs]
    runs, events = tx.runs_of(ids), tx.events_of(ids, wasted.EXCLUDING)
    return {job.id: _idle_s(job, runs[job.id], events[job.id], now_ms) for job in jobs}


def _idle_s(job: Job, runs: Sequence[Run], events: Sequence[Event], now_ms: int) -> float:
    """Since the job last trained, or was submitted or resumed, in market seconds; 0 while it runs."""
    if current_run(runs) is not None:
        return 0.0
    trained = [run.training_to_ms or 0 for run in runs if run.training_from_ms is not None]
    since_ms = max([job.submitted_at_ms, *trained, *wasted.resumed_ms(events)])
    return max(now_ms - since_ms, 0) / 1000


def _running(past: _Past, run: Run, now_ms: int, leaving: bool) -> Running:
    # a move aborted after its machine was rented also cost money
    rented = {each.id for each in past.runs if each.instance_id is not None}
    moves: list[Migration] = [
        migration
        for migration in past.migrations
        if migration.reason in VOLUNTARY and migration.target_run_id in rented
    ]
    came_by = next((each.reason for each in past.migrations if each.target_run_id == run.id), None)
    return Running(
        offer_id=run.offer_id,
        since_ms=run.training_from_ms or run.created_at_ms,
        last_migration_ms=max((migration.step_at_ms for migration in moves), default=None),
        migrations_today=sum(1 for migration in moves if migration.step_at_ms > now_ms - DAY_MS),
        migrating=may_change_place(each for each in past.migrations if each.step not in (Step.DONE, Step.ABORTED)),
        leaving=leaving,
        came_by=came_by or "first placement",
    )
