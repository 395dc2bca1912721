"""Claim: the cost of a query depends on the size of its result, not on the size of the store.

    python -m benchmarks.queries            100,000 offers, 10,000 jobs, 1,000,000 ledger entries and events: minutes
    python -m benchmarks.queries --quick    10,000 offers, 1,000 jobs, 100,000 ledger entries and events
    python -m benchmarks.queries --store postgresql://USER@HOST/EMPTY_DATABASE

A year of jobs is loaded in bulk, without timing. Then 100 more jobs train on simulated machines in virtual time: the
writer's transactions are those of the engine's ticks, each timed from the request for the write lock to the end of the
commit. The other queries are those of the product, on the same store. Times are medians of 7, or single measurements
where a query takes seconds. `cold` is the first query of a process, `warm` a later one, after a poll that changed 200
prices.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from benchmarks._claims import Claim, show
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.ledger import BASELINES, Comparison, Inputs
from orchestrator.model import Job, JobSpec, Migration, Run, Step
from orchestrator.reports import report
from orchestrator.reports.entries_csv import write_entries
from orchestrator.services.control_plane.lifecycle import environment_to_keep
from orchestrator.services.jobs import apply, current
from orchestrator.services.jobs.explain import DECISIONS, explain
from orchestrator.services.jobs.plan import planned
from orchestrator.services.store import check
from orchestrator.store import Leadership, Store, Tx
from orchestrator.store.backends.backend import Backend, backend_of
from orchestrator.store.schema import event, ledger_entry, ledger_sum
from providers.clock import VirtualClock
from providers.fake import Behaviour
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.rig import SimulatedInstallation, Timings, train_spec
from tests.rig.crash_points import MortalStore

DAY_MS = 86_400_000
LIVE = 100
CHANGES = 6
"""Price changes per spot offer in the last 14 days."""
RUNS = 3
"""Per ended job."""
GPUS = ("V100", "T4", "A10G", "A100-40GB", "L4", "H100")
CLOUDS = ("aws", "azure", "gcp")
SETTLE_TICKS, MEASURED_TICKS = 40, 60
TICK_S = 3.0


@dataclass(frozen=True)
class Sizes:
    """The sizes of the store."""

    offers: int
    jobs: int
    entries: int
    events: int


FULL, QUICK = Sizes(100_000, 10_000, 1_000_000, 1_000_000), Sizes(10_000, 1_000, 100_000, 100_000)


class Emptied:
    """The database at an address, with the product's own settings. It must be empty, so wiping does nothing."""

    def __init__(self, url: str) -> None:
        self.url = url
        Store.open(url, VirtualClock(), random=random.Random(0)).close()
        self.backend: Backend = backend_of(url, create=False)

    def wipe(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Close all connections."""
        self.backend.close()


class TimedStore(MortalStore):
    """A store that records the duration of each of its write transactions, in ms."""

    took_ms: list[float]

    @contextmanager
    def write(self, leadership: Leadership | None = None) -> Iterator[Tx]:
        """As Store.write."""
        began = perf_counter()
        with Store.write(self, leadership) as tx:
            yield tx
        self.took_ms.append((perf_counter() - began) * 1000)


class Measured(SimulatedInstallation):
    """An installation whose control plane's writes are timed."""

    def open_store(self) -> TimedStore:
        store = TimedStore(self.database.backend, self.clock, self.random)
        store.injector = self.injector
        store.took_ms = []
        return store


def offers(count: int) -> list[Offer]:
    """Offers of three clouds with 34 regions of three zones each; half of them are spot."""
    made = []
    for number in range(count // 2):
        cloud, place, shape = CLOUDS[number % 3], number // 3 % 102, number // 306
        region, gpu = f"r{place % 34:02}", GPUS[shape % len(GPUS)]
        made += [
            Offer(cloud, region, f"{region}-{place // 34}", f"{gpu}.{shape}".lower(), gpu, 1, 8, 64 * GIB, kind)
            for kind in CapacityType
        ]
    return made


def catalog() -> list[tuple[Offer, int]]:
    """The 40 offers that can be rented in the simulation."""
    return [
        (
            Offer("fake", f"r{n % 8}", f"r{n % 8}-{n % 3}", f"v100.{n}", "V100", 1, 8, 64 * GIB, kind, simulated=True),
            usd(f"{1 + n / 10:.2f}") * (3 if kind is CapacityType.ON_DEMAND else 1),
        )
        for n in range(20)
        for kind in CapacityType
    ]


def batched(rows: Iterator[dict[str, Any]], size: int = 50_000) -> Iterator[list[dict[str, Any]]]:
    """Split into lists of at most that many."""
    found: list[dict[str, Any]] = []
    for row in rows:
        found.append(row)
        if len(found) == size:
            yield found
            found = []
    if found:
        yield found


def load(store: Store, sizes: Sizes, now_ms: int) -> list[str]:
    """Load jobs that ended, evenly over a year. Returns their ids."""
    rng = random.Random(13)
    listed = offers(sizes.offers)
    by_cloud = {cloud: [each for each in listed if each.provider == cloud] for cloud in CLOUDS}
    began_ms = now_ms - 365 * DAY_MS
    for cloud, there in by_cloud.items():
        with store.write() as tx:
            tx.put_offers(cloud, there)
        points = []
        for each in there:
            price = rng.randrange(200_000_000, 9_000_000_000)
            since = (
                [began_ms - DAY_MS]
                if not each.spot
                else sorted(rng.randrange(now_ms - 14 * DAY_MS, now_ms) for _ in range(CHANGES))
            )
            points += [PricePoint(each.id, price + n, at, at, "benchmark") for n, at in enumerate(since)]
        for start in range(0, len(points), 100_000):
            with store.write() as tx:
                tx.add_prices(points[start : start + 100_000])
        with store.write() as tx:
            tx.record_poll(cloud, now_ms, now_ms, len(there), 0, None)
    rented = [each.id for each in listed if not each.spot][:500]
    with store.read() as tx:
        prices = dict(zip(rented, tx.prices_at([(name, now_ms) for name in rented]), strict=True))
    per_job, reported = sizes.entries // sizes.jobs, sizes.events // sizes.jobs
    ids, periods = [], []
    span_ms = 330 * DAY_MS // sizes.jobs
    for number in range(sizes.jobs):
        if number % 500 == 0:
            writing = store.write()
            tx = writing.__enter__()
        at_ms = began_ms + number * span_ms
        job_id = f"job_{number:07}"
        ids.append(job_id)
        spec = JobSpec(f"past-{number}", train_spec(1000, args={"seed": number}), budget_nano_usd=usd("500"))
        tx.add_job(Job(job_id, spec, "me", at_ms, "finished"))
        booked = [per_job // RUNS] * (RUNS - 1) + [per_job - per_job // RUNS * (RUNS - 1)]
        paid = 0
        for generation, count in enumerate(booked, 1):
            run_id, offer_id = f"run_{number:07}_{generation}", rng.choice(rented)
            end_ms = at_ms + count * 300_000
            tx.add_run(
                Run(
                    run_id,
                    job_id,
                    generation,
                    offer_id,
                    f"i-{run_id}",
                    "ended",
                    at_ms,
                    at_ms,
                    end_ms,
                    at_ms,
                    end_ms,
                    "finished" if generation == RUNS else "moved",
                    start_step=generation * 300,
                    last_step=generation * 300 + 300,
                    useful_s=count * 290.0,
                )
            )
            source = None if generation == 1 else f"run_{number:07}_{generation - 1}"
            tx.add_migration(
                Migration(
                    f"mig_{number:07}_{generation}",
                    job_id,
                    source,
                    run_id,
                    offer_id,
                    generation,
                    "first placement" if source is None else "cheaper offer",
                    Step.DONE,
                    1,
                    f"token-{run_id}",
                    at_ms,
                    at_ms,
                )
            )
            price = prices[offer_id] or 0
            paid += price * (end_ms - at_ms) // 3_600_000
            periods.append((job_id, run_id, offer_id, at_ms, count, price))
            at_ms = end_ms
        tx.set_job_facts(job_id, total_steps=1000, finished_at_ms=at_ms)
        inputs = Inputs((), {}, {}, paid + 10**9)
        tx.add_comparisons(
            [Comparison(job_id, 1, name, at_ms, "", paid, per_job, paid + 10**9, "", inputs) for name in BASELINES]
        )
        if number % 500 == 499 or number == sizes.jobs - 1:
            writing.__exit__(None, None, None)
    for rows in batched(_entries(periods)):
        with store.write() as tx:
            tx._insert_many(ledger_entry, rows)
    with store.write() as tx:
        tx._insert_many(ledger_sum, [_sum(*period) for period in periods])
    for rows in batched(_events(ids, reported, began_ms, span_ms)):
        with store.write() as tx:
            tx._insert_many(event, rows)
    return ids


def _sum(job_id: str, run_id: str, _offer: str, _start_ms: int, count: int, price: int) -> dict[str, Any]:
    paid = price * count * 300_000 // 3_600_000
    return {"job_id": job_id, "run_id": run_id, "kind": "compute", "entries": count, "amount_nano_usd": paid}


def _entries(periods: Sequence[tuple[str, str, str, int, int, int]]) -> Iterator[dict[str, Any]]:
    number = 0
    for job_id, run_id, offer_id, start_ms, count, price in periods:
        for period in range(count):
            begin = start_ms + period * 300_000
            paid = [price * (at - start_ms) // 3_600_000 for at in (begin, begin + 300_000)]
            number += 1
            yield {
                "id": f"ent_{number:09}",
                "run_id": run_id,
                "job_id": job_id,
                "period_start_ms": begin,
                "period_end_ms": begin + 300_000,
                "kind": "compute",
                "amount_nano_usd": paid[1] - paid[0],
                "basis": "estimated",
                "offer_id": offer_id,
                "at_ms": begin + 300_000,
                "reverses": "",
                "project": "default",
                "owner": "me",
                "labels": "{}",
            }


def _events(ids: Sequence[str], each: int, began_ms: int, span_ms: int) -> Iterator[dict[str, Any]]:
    kinds = ("plan.decided", "migration.ready", "migration.cutover", "run.suspected", "job.waits")
    for number, job_id in enumerate(ids):
        for place in range(each):
            yield {
                "id": f"ev_{number:07}_{place:04}",
                "at_ms": began_ms + number * span_ms + place * 60_000,
                "kind": kinds[place % len(kinds)],
                "message": "move on aws/r01/r01-1/v100.1/spot: saves $1.2345 of what is left, in 3 h",
                "actor": "control-plane",
                "job_id": job_id,
                "run_id": None,
                "migration_id": None,
                "plan_id": None,
                "data": '{"gap_s":12.5}',
                "project": "default",
                "owner": "me",
                "labels": "{}",
            }


def timed_ms(work: Callable[[], object], repetitions: int = 7, before: Callable[[], object] = lambda: None) -> float:
    """The median time of a call in ms; `before` is called before each, without timing."""
    took = []
    for _ in range(repetitions):
        before()
        began = perf_counter()
        work()
        took.append((perf_counter() - began) * 1000)
    return median(took)


def train_beside(home: Measured) -> list[float]:
    """Start 100 jobs. Returns the duration of each of the engine's transactions once all of them train, in ms."""
    for number in range(LIVE):
        budget = usd("10000") if number % 2 else None
        home.submit_job(JobSpec(f"live-{number}", train_spec(1_000_000, args={"seed": number}), budget_nano_usd=budget))
    for _ in range(SETTLE_TICKS):
        home.tick(TICK_S)
    assert isinstance(home.store, TimedStore)
    home.store.took_ms.clear()
    rng = random.Random(7)
    for number in range(MEASURED_TICKS):
        if number % 10 == 0:  # a decision is due
            offer, price = rng.choice(catalog())
            home.cloud.set_price(offer.id, int(price * rng.uniform(0.7, 1.4)))
        home.tick(TICK_S)
    return list(home.store.took_ms)


def measure(home: Measured, ids: Sequence[str], sizes: Sizes) -> list[Claim]:
    """Time the store's queries, as the product calls them."""
    rng = random.Random(5)
    store, now_ms = home.store, home.clock.now_ms()
    listed = [each.id for each in offers(sizes.offers)]
    names = [f"past-{number}" for number in range(sizes.jobs)]
    with store.read() as tx:
        live = [job.id for job in tx.outlines(ended=False)]

    def single(ask: Callable[[Tx], object]) -> float:
        def work() -> None:
            with store.read() as tx:
                ask(tx)

        return timed_ms(work, 31)

    def look(what: str, ask: Callable[[Tx], object]) -> Claim:
        return Claim(what, single(ask), "ms", 2)

    return [
        look("price of an offer", lambda tx: tx.price_changes(rng.choice(listed), now_ms, now_ms + 1)),
        look("a job by its id", lambda tx: tx.job(rng.choice(ids))),
        look("a job by its name", lambda tx: tx.find_job(rng.choice(names))),
        look("a job by the beginning of its id", lambda tx: tx.find_job(rng.choice(live)[:-2].lower())),
        look("a page of 100 jobs in order", lambda tx: tx.outlines(after=(now_ms - 100 * DAY_MS, ""), limit=100)),
        look("the newest 40 decisions about a job", lambda tx: tx.newest_of_kinds(rng.choice(ids), DECISIONS, 40)),
        look("30 offers by their ids", lambda tx: tx.offers_of(rng.sample(listed, 30))),
        look("runs of a job", lambda tx: tx.runs(job_id=rng.choice(ids))),
        look(f"the {sizes.entries // sizes.jobs} entries of a job", lambda tx: tx.entries(job_id=rng.choice(ids))),
        look("the total cost of a job", lambda tx: tx.total_nano_usd(rng.choice(ids))),
        look(
            "the newest 20 events of a job", lambda tx: tx.events(job_id=rng.choice(ids), limit=20, newest_first=True)
        ),
        look(
            "the newest event of a kind",
            lambda tx: tx.events(job_id=rng.choice(ids), kinds=("job.paused",), limit=1, newest_first=True),
        ),
        *_asked_of_services(home, sizes),
    ]


def _asked_of_services(home: Measured, sizes: Sizes) -> list[Claim]:
    """Time the queries of commands, with all offers from enabled providers."""
    config = replace(home.config, providers=replace(home.config.providers, enabled=("fake", *CLOUDS)))
    installation = replace(home.installation, config=config)

    markets = MarketReader()
    rng = random.Random(3)
    spot = [each for each in offers(sizes.offers) if each.spot]

    def poll() -> None:
        """Store a poll that changes 200 prices."""
        home.clock.advance(1.0)
        now_ms = home.clock.now_ms()
        with home.store.write() as tx:
            changed = rng.sample(spot, 200)
            tx.add_prices(PricePoint(each.id, rng.randrange(10**9, 10**10), now_ms, now_ms, "poll") for each in changed)

    def decision() -> None:
        with home.store.read() as tx:
            snapshot.inputs(tx, home.clock.now_ms(), config, markets=markets)

    def half_an_hour_later() -> None:
        home.clock.advance(1800.0)
        decision()

    month = datetime.fromtimestamp(home.clock.now_ms() / 1000 - 60 * 86_400, UTC).strftime("%Y-%m")

    plan_file = installation.state_dir / "plan.json"
    with home.store.read() as tx:
        one = tx.find_job("live-7").id
    apply.save(planned(installation, (), only=[one]), plan_file)

    def every_entry() -> None:
        with open(os.devnull, "w") as nowhere, report.entries(installation) as entries:
            write_entries(nowhere, entries)

    what = f"a decision's read and build, {LIVE} live jobs"
    return [
        Claim(f"{what}: cold", timed_ms(decision, 1), "ms"),
        Claim(f"{what}: warm", timed_ms(decision, before=poll), "ms", 50),
        Claim(f"queue, {LIVE} live jobs", timed_ms(lambda: current.jobs(installation)), "ms", 100),
        Claim(
            "a page of 100 of queue --all", timed_ms(lambda: current.jobs(installation, ended=True, limit=100)), "ms"
        ),
        Claim("explain JOB", timed_ms(lambda: explain(installation, "live-7")), "ms", 50),
        Claim("apply: the plan is read", timed_ms(lambda: apply.load(installation, plan_file)), "ms", 50),
        Claim("up, submit: the environment to keep", timed_ms(lambda: environment_to_keep(installation, {})), "ms", 50),
        Claim("queue --all", timed_ms(lambda: current.jobs(installation, ended=True), 1), "ms"),
        Claim(f"{what}: warm, the first in half an hour", timed_ms(half_an_hour_later, 3), "ms"),
        Claim("a month's report", timed_ms(lambda: report.report(installation, month=month), 3), "ms", 500),
        Claim("report --csv of all entries", timed_ms(every_entry, 1), "ms"),
        Claim("report --csv of all entries: memory", peak_mb(every_entry), "MB", 50),
        Claim("store check", timed_ms(lambda: check.check(config), 1), "ms"),
    ]


def peak_mb(work: Callable[[], object]) -> float:
    """The peak of Python's allocations above the present level, in bytes."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="10,000 offers, 1,000 jobs, 100,000 entries and events")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--store", help="URL of an empty database; default: a new SQLite file")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="tw-bench-") as made:
        folder = Path(made)
        database = Emptied(options.store or f"sqlite:///{folder}/tradewind.db")
        home = Measured(
            folder,
            database,
            catalog=catalog(),
            behaviour=Behaviour(boot_s=2.0, listing_lag_s=3.0, stop_s=1.0, late_s=4.0),
            timings=Timings(step_s=1.0, prepare_s=1.0, restore_s=1.0, checkpoint_every_s=60.0),
            overrides={"limits.max_instances": 2 * LIVE, "limits.max_usd_per_hour": 1e6},
        )
        began = perf_counter()
        ids = load(home.store, sizes, home.clock.now_ms())
        loaded_s = perf_counter() - began
        took_ms = train_beside(home)
        claims = [
            Claim("a writer's transaction, 99th percentile", quantiles(took_ms, n=100)[98], "ms", 20),
            Claim("a writer's transaction, median", median(took_ms), "ms"),
            Claim("a writer's transaction, longest", max(took_ms), "ms"),
            *measure(home, ids, sizes),
        ]
        database.close()
    notes = [
        f"{sizes.offers:,} offers with {sizes.offers * (CHANGES + 1) // 2:,} prices, {sizes.jobs:,} jobs that ended in "
        f"a year, {sizes.entries:,} entries and {sizes.events:,} events, loaded in {loaded_s:.0f} s; {LIVE} live jobs, "
        f"{len(took_ms)} transactions in {MEASURED_TICKS} ticks",
    ]
    return show("Query times", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
