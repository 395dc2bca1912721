"""Claim: the control plane and the replay decide the same history alike, at every tick.

    python -m benchmarks.same_placements             500 jobs in 10 days of recorded prices; over 20 CPU minutes
    python -m benchmarks.same_placements --jobs 60   as many as there is time for: 60 jobs in 1.2 days
    python -m benchmarks.same_placements --quick     15 jobs in a day

The engine runs in virtual time on AWS's prices of 2020 (folder `market` of the shared data) with synthetic capacity.
Whenever it decides, the replay receives the history so far (prices, launches, refusals and losses, and the progress of
the runs) and decides for the same jobs with its own view of the market and of the jobs. Placements, their reasons and
forecasts must be equal.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks._claims import Claim, show
from orchestrator.arena.replay.bill import Bill
from orchestrator.arena.replay.capacity import Pool, synthetic
from orchestrator.arena.replay.histories import aws
from orchestrator.arena.replay.jobs import ReplayJob
from orchestrator.arena.replay.knowledge import DAY_MS, REMEMBERED_MS, Knowledge
from orchestrator.arena.replay.live import planned
from orchestrator.arena.replay.record import Record
from orchestrator.arena.replay.state import NEVER, Machine, State
from orchestrator.engine.compartment import Compartment
from orchestrator.engine.inputs import latencies, snapshot
from orchestrator.engine.inputs.latencies import PlaceAndKind
from orchestrator.engine.inputs.price_courses import EVERY_MS
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.market import TYPICAL, AvailabilityPoint
from orchestrator.model import ACTION_WORDS_ON, VOLUNTARY, Job, JobForecast, JobSpec, Plan, TrainSpec
from orchestrator.perf import InstanceKind, Latencies, PerfBook, kind_of
from orchestrator.policy import MoveLimits, expected
from orchestrator.store import Tx
from providers.base import Landed, LaunchSpec
from providers.clock import VirtualClock
from providers.fake import Behaviour, FakeCloud
from providers.offer import location_of
from tests.rig import Saboteur, ScratchDatabase, SimulatedInstallation, SqliteScratchDatabase, Timings, memory_folder

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")
JOBS, DAYS, JOBS_QUICK, DAYS_QUICK = 500, 10.0, 15, 1.0
HOURS = (0.5, 40.0)  # of work, log-uniform
BEFORE_DAYS = 7  # days of prices before the installation: it collects as many at its start
STRIDES_S = (30.0, 900.0)  # seconds between ticks: after a change, and at most
STARTUP_S, RESTORE_S, SAVE_EVERY_S = 200.0, 30.0, 1200.0


class RecordedCloud(FakeCloud):
    """A fake cloud with the prices of a record and hidden capacity."""

    def __init__(self, clock: VirtualClock, record: Record, capacity: Sequence[Pool]) -> None:
        self._record, self._capacity = record, capacity
        rows = range(len(record.listing))
        super().__init__(
            clock,
            catalog=[(record.listing.offer(row), record.changes[row][0][1]) for row in rows],
            behaviour=Behaviour(boot_s=0.0, listing_lag_s=0.0, stop_s=1.0, notice_s=None, forget_s=3600.0),
        )
        for row in rows:
            for at_ms, price in record.changes[row]:
                if at_ms > clock.now_ms():
                    self.set_price(record.listing.ids[row], price, at_ms)

    def launch(self, spec: LaunchSpec, at_ms: int) -> Landed:
        row = self._record.listing.row(spec.offer_id)
        assert row is not None
        pool, known = self._capacity[row], self.accepted(spec.token)
        self.set_capacity(spec.offer_id, None if pool.up(at_ms) else 0)
        landed = super().launch(spec, at_ms)
        lost_ms = pool.lost_ms(at_ms)
        if lost_ms is not None and not known:
            for instance_id in landed.instance_ids:
                self.preempt(instance_id, None, lost_ms)
        return landed


def recorded(folder: Path, start_ms: int) -> Record:
    """AWS's machines of 2020 with one GPU as offers of the fake cloud, from `start_ms` on. (Simulated trainers are
    equally fast on both kinds.)"""
    whole = aws(folder)
    first_ms = whole.start_ms - BEFORE_DAYS * DAY_MS
    prices = {}
    for row in range(len(whole.listing)):
        offer = whole.listing.offer(row)
        if offer.instance_type in ("p2.xlarge", "p3.2xlarge"):
            mine = whole.between(row, first_ms, whole.end_ms)
            moved = [(max(at_ms, first_ms) - first_ms + start_ms, price) for at_ms, price in mine]
            first = (start_ms, moved[0][1])  # the fake cloud sells all its offers from the start
            prices[replace(offer, provider="fake", simulated=True)] = [first, *moved]
    end_ms = start_ms + whole.end_ms - first_ms
    return Record.of("aws-2020", prices, start_ms + BEFORE_DAYS * DAY_MS, end_ms)


@dataclass(slots=True)
class Recorded(State):
    """A job according to the control plane's history: steps and money as reported."""

    done: float = 0.0
    paid: int = 0
    secured: bool = False

    def steps(self, _at_ms: int) -> float:
        return self.done

    def saved_steps(self, _at_ms: int) -> float:
        return 1.0 if self.secured else 0.0

    def spent(self, _at_ms: int) -> int:
        return self.paid


@dataclass
class Watch(Saboteur):
    """Records, when the control plane begins to decide, the jobs in question and the replay's plan for them."""

    home: Home | None = None
    asked: list[str] = field(default_factory=list)
    history: History | None = None

    def crossing(self, where: str, about: str) -> None:
        super().crossing(where, about)
        if where == Compartment.DECIDE.value:
            assert self.home is not None
            if self.history is None:
                self.history = self.home.history()
            self.home.tell(self.history, about)
            self.asked.append(about)


@dataclass(frozen=True)
class History:
    """The facts known when the control plane began to decide."""

    knowledge: Knowledge
    at_ms: int
    states: dict[str, State]
    points: Sequence[AvailabilityPoint]
    starts: dict[str, Latencies[PlaceAndKind]]
    perf: PerfBook
    gaps: Latencies[str]

    def plan(self, job_ids: Collection[str], limits: MoveLimits) -> Plan:
        """The replay's plan."""
        market = self.knowledge.market(
            self.at_ms,
            self.points,
            {name: each.usual for name, each in self.starts.items()},
            {place: each for known in self.starts.values() for place, each in known.at.items()},
        )
        return planned([self.states[job_id] for job_id in sorted(job_ids)], market, self.perf, limits)


class Home(SimulatedInstallation):
    """An installation on a record."""

    def __init__(self, folder: Path, database: ScratchDatabase, shared: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        record = recorded(shared, VirtualClock().now_ms())
        capacity = synthetic(record, seed, record.end_ms)
        self._speeds = SpeedReader()
        self.knowledge = Knowledge(record, TYPICAL, STARTUP_S, EVERY_MS)
        timings = Timings(
            step_s=60.0, prepare_s=STARTUP_S, restore_s=RESTORE_S, checkpoint_every_s=SAVE_EVERY_S, saving=0.035
        )
        super().__init__(
            folder,
            database,
            catalog=(),
            seed=seed,
            timings=timings,
            overrides={"limits.max_usd_per_hour": 1e6, "limits.max_instances": 100_000},
            cloud=partial(_cloud, record, capacity),
        )

    def start(self) -> None:
        self.saboteur = Watch(home=self)
        super().start()

    def submit(self, number: int) -> None:
        """A job whose speed is known from a similar one."""
        hours = math.exp(self.chance.uniform(math.log(HOURS[0]), math.log(HOURS[1])))
        steps = max(round(hours * 60), 5)
        train = TrainSpec(f"job{number}:main", None, {}, "/", {}, (), steps, None)
        spec = JobSpec(f"job-{number}", train, deadline_s=hours * 7200 if number % 2 else None, probe=False)
        with self.store.write() as tx:
            before = replace(self.new_job(replace(spec, name="before")), state="finished")
            tx.add_job(before)
            for gpu, count in self._kinds:
                tx.add_perf(before.id, gpu, count, 1 / 60, 10_000, self.clock.now_ms())
        self.submit_job(spec)

    @property
    def _kinds(self) -> list[InstanceKind]:
        return [kind_of(*kind) for kind in self.knowledge.record.listing.kinds]

    def history(self) -> History:
        """The current knowledge of the market and of all speeds."""
        now_ms = self.clock.now_ms()
        with self.store.read() as tx:
            jobs = [job.id for job in tx.jobs(states=("queued", "running"))]
            rows = tx.availability(now_ms - REMEMBERED_MS, now_ms)
            points = [AvailabilityPoint(row.offer_id, row.at_ms, row.kind) for row in rows]  # type: ignore[arg-type]
            starts = latencies.starts(latencies.started(tx, self.config), self.config, self._kind_at)
            perf = snapshot.perf(tx, now_ms, jobs, self._speeds)
            gaps = latencies.handovers(tx, self.config)
            return History(self.knowledge, now_ms, {}, points, starts, perf, gaps)

    def tell(self, history: History, job_id: str) -> None:
        """Add the current knowledge of a job."""
        with self.store.read() as tx:
            for job in tx.jobs_of([job_id]):
                history.states[job_id] = self._state(tx, job, history.gaps)

    def _kind_at(self, offer_id: str) -> InstanceKind | None:
        listing = self.knowledge.record.listing
        row = listing.row(offer_id)
        return None if row is None else kind_of(*listing.kinds[int(listing.kind[row])])

    def _state(self, tx: Tx, job: Job, gaps: Latencies[str]) -> State:
        runs, facts = tx.runs(job_id=job.id), tx.job_facts(job.id)
        trained = [run for run in runs if run.training_from_ms is not None]
        last = trained[-1] if trained else None
        migrations = tx.migrations(job_id=job.id)
        rented = {run.id for run in runs if run.instance_id is not None}
        size, steps = facts.checkpoint_bytes or 0, job.spec.train.steps
        assert steps is not None
        save_s = latencies.save_s(self.config, runs, size, latencies.save_wall_s_per_byte(tx))
        made = ReplayJob(job, job.submitted_at_ms, steps, {}, size, save_s, 0.0)
        state = Recorded(
            made,
            Bill(self.knowledge.record, TYPICAL, 0),
            NEVER,
            checkpoint_at=location_of(trained[-1].offer_id) if trained else None,
            trained_ms=max((run.training_to_ms for run in trained if run.training_to_ms is not None), default=None),
            handover_s=latencies.handover_s(gaps, job.id, save_s),
            moved_ms=[m.step_at_ms for m in migrations if m.reason in VOLUNTARY and m.target_run_id in rented],
            done=0 if last is None else last.last_step if last.end is None else last.saved_step or 0,
            paid=tx.total_nano_usd(job_id=job.id),
            secured=size > 0,
        )
        for run in trained:
            if run.end is None and run.state in ("training", "quiesced"):
                row, place = self.knowledge.record.listing.row(run.offer_id), location_of(run.offer_id)
                kind, came = self._kind_at(run.offer_id), {m.target_run_id: m.reason for m in migrations}
                assert row is not None
                assert kind is not None
                assert run.training_from_ms is not None
                began_ms, ready_ms = run.created_at_ms, run.training_from_ms
                state.machine = Machine(row, kind, place, began_ms, ready_ms, NEVER, came[run.id])
        return state


def _cloud(record: Record, capacity: Sequence[Pool], clock: VirtualClock) -> RecordedCloud:
    cloud = RecordedCloud(clock, record, capacity)
    clock.advance(BEFORE_DAYS * DAY_MS / 1000)
    return cloud


@dataclass
class Compared:
    """The numbers of compared and of differing decisions; `placed` and `moved` are those that opened a migration."""

    decisions: int = 0
    ticks: int = 0
    placed: int = 0
    moved: int = 0
    differ: list[str] = field(default_factory=list)


def compare(home: Home, jobs: int, days: float) -> Compared:
    """Run jobs that arrive within this many days, and compare every decision about them."""
    found = Compared()
    with closing(home.store):
        arrivals = sorted(home.chance.uniform(0, days * 86_400) for _ in range(jobs))
        submitted, stride_s = 0, STRIDES_S[0]
        began_s = home.clock.monotonic_s()
        while submitted < jobs or not home.settled:
            while submitted < jobs and arrivals[submitted] <= home.clock.monotonic_s() - began_s:
                home.submit(submitted)
                submitted += 1
            changed = home.tick(0.0)
            _compare(home, found)
            stride_s = STRIDES_S[0] if changed else min(2 * stride_s, STRIDES_S[1])
            home.clock.advance(stride_s)
    return found


def _compare(home: Home, found: Compared) -> None:
    watch = home.saboteur
    assert isinstance(watch, Watch)
    asked, history = watch.asked, watch.history
    watch.asked, watch.history = [], None
    if history is None:
        return
    now_ms = home.clock.now_ms()
    with home.store.read() as tx:
        forecasts = tx.job_forecasts(asked, now_ms)
        newest = tx.events(kinds=("plan.decided",), newest_first=True, limit=2 * len(asked) + 8)
        events = [each for each in reversed(newest) if each.at_ms == now_ms]
        opened = {each.job_id: each.message.partition(": ")[0] for each in events}
    plan = history.plan(forecasts, snapshot.limits(home.config))
    found.ticks += 1
    for placement in plan.placements:
        verb = ACTION_WORDS_ON[placement.action] if placement.action in ("place", "move") else None
        ours = None if verb is None else f"{verb} {placement.offer_id}"
        theirs = opened.get(placement.job_id)
        found.decisions += 1
        found.placed += placement.action == "place"
        found.moved += placement.action == "move"
        if ours != theirs:
            found.differ.append(f"{now_ms} {placement.job_id}: {theirs} live, {ours} replayed")
        elif not _alike(forecasts[placement.job_id], expected(placement, now_ms)):
            live, replayed = forecasts[placement.job_id], expected(placement, now_ms)
            found.differ.append(f"{now_ms} {placement.job_id}: {live} live, {replayed} replayed")


def _alike(one: JobForecast | str, other: JobForecast | str) -> bool:
    """Whether two forecasts are equal except for rounding."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    figures = ("cost_nano_usd", "cost_low_nano_usd", "cost_high_nano_usd", "duration_s", "duration_low_s")
    return all(math.isclose(getattr(one, name), getattr(other, name), rel_tol=1e-9, abs_tol=2) for name in figures)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sample, within 50 s")
    parser.add_argument("--json", action="store_true", help="only the claims, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"as many a day as {JOBS} in {DAYS:g} days")
    options = parser.parse_args(arguments)
    folder = SHARED / "market"
    if not folder.is_dir():
        return show("Same placements", [], as_json=options.json, notes=[f"no recorded markets in {folder}"])
    jobs, days = (JOBS_QUICK, DAYS_QUICK) if options.quick else (options.jobs, DAYS * options.jobs / JOBS)
    with memory_folder() as scratch, closing(SqliteScratchDatabase(scratch)) as database:
        found = compare(Home(scratch / "home", database, folder, options.seed), jobs, days)
    for line in found.differ[:10]:
        print(line, file=sys.stderr)
    claims = [
        Claim(f"{jobs} jobs: decisions that differ", len(found.differ), "decisions", 0),
        Claim("decisions", found.decisions, "decisions"),
        Claim("ticks with decisions", found.ticks, "ticks"),
        Claim("placements", found.placed, "placements"),
        Claim("moves", found.moved, "moves"),
    ]
    return show("Same placements", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
