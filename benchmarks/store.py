"""Claim: with 10 million price changes, the store answers a control plane's queries in milliseconds, on two databases.

    python -m benchmarks.store            10,000,000 rows (4,000 offers, 2,500 changes each in 180 days): minutes
    python -m benchmarks.store --quick    300,000 rows (4,000 offers, 75 changes each in 180 days)

Each figure is the median of several calls of the store's own methods, each in its own transaction. Rows are loaded in
bulk, in the order of the key, without timing. tests/postgres.py starts Postgres with 16 MB of buffers and no fsync;
without Postgres, its rows are missing and a note says so. Both databases must compute the same costs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks._claims import Claim, show
from orchestrator.store import Interval, Store
from providers.clock import VirtualClock
from providers.money import cost_nano_usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.postgres import AS_INSTALLED, server

OFFERS = 4_000
CHANGES, QUICK_CHANGES = 2_500, 75
RUNS = 2_000
SPAN_MS = 180 * 86_400_000
T0 = 1_700_000_000_000
NOW = T0 + SPAN_MS
SOURCE = "benchmark"


@dataclass(frozen=True)
class SeededPrices:
    """Offers, and the instants and prices of each one's changes, observed up to ten minutes after they took effect."""

    offers: Sequence[Offer]
    effective: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    observed: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    prices: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    def rows(self, number: int) -> Iterator[tuple[int, int, int, int, int]]:
        """The rows of one offer in price_point."""
        columns = (self.effective[number], self.observed[number], self.prices[number])
        for effective, observed, price in zip(*(each.tolist() for each in columns), strict=True):
            yield number + 1, effective, observed, price, 1


def seeded_prices(changes: int) -> SeededPrices:
    """The test data: the same for every database and every run."""
    random = np.random.default_rng(11)
    offers = [
        Offer("aws", f"r{n % 34:02}", f"r{n % 34:02}-z{n % 5}", f"t{n:04}", "H100", 8, 192, 2**41, CapacityType.SPOT)
        for n in range(OFFERS)
    ]
    slots = np.sort(random.random((OFFERS, changes)), axis=1) * (SPAN_MS - 2 * 600_000 - changes)
    effective = (slots + np.arange(changes) + T0).astype(np.int64)
    observed = effective + random.integers(0, 600_000, effective.shape)
    steps = random.choice([0.95, 0.98, 1.02, 1.05], effective.shape).cumprod(axis=1)
    prices = (np.clip(20 * steps, 0.1, 90) * 1e9).astype(np.int64) + random.integers(1, 1000, effective.shape)
    return SeededPrices(offers, effective, observed, prices)


def load(store: Store, market: SeededPrices) -> None:
    """Load everything in bulk: with COPY, or with many rows per statement."""
    with store.write() as tx:
        tx.put_offers("aws", market.offers)
        tx.add_prices([PricePoint(market.offers[0].id, 1, T0 - 1, T0 - 1, SOURCE)])  # creates the source
    for start in range(0, OFFERS, 200):
        with store.write() as tx:
            raw: Any = tx._connection.connection.driver_connection
            rows = (row for number in range(start, start + 200) for row in market.rows(number))
            if tx._connection.dialect.name == "postgresql":
                with raw.cursor() as cursor, cursor.copy("COPY price_point FROM STDIN") as stream:
                    for row in rows:
                        stream.write_row(row)
            else:
                raw.executemany("INSERT INTO price_point VALUES (?, ?, ?, ?, ?)", rows)
    with store.write() as tx:
        tx._connection.exec_driver_sql("DELETE FROM price_now")
        tx._connection.exec_driver_sql(
            "INSERT INTO price_now (offer_key, effective_at_ms, observed_at_ms, nano_usd_per_hour, source_key) "
            "SELECT point.* FROM offer JOIN price_point AS point ON point.offer_key = offer.key "
            "AND point.effective_at_ms = (SELECT max(effective_at_ms) FROM price_point WHERE offer_key = offer.key)"
        )


def measure(name: str, store: Store, market: SeededPrices, repetitions: int) -> tuple[list[Claim], int, str]:
    """The four figures, the total cost of all runs (to compare the databases), and a note."""
    random = np.random.default_rng(12)
    starts = (T0 + SPAN_MS * (0.05 + 0.85 * random.random(RUNS))).astype(int).tolist()
    lengths = (3_600_000 * (1 + 47 * random.random(RUNS))).astype(int).tolist()
    chosen = [market.offers[n].id for n in random.integers(0, OFFERS, RUNS)]
    runs = [Interval(*each) for each in zip(chosen, starts, (a + b for a, b in zip(starts, lengths)), strict=True)]  # noqa: B905
    bills = []

    def latest() -> None:
        with store.read() as tx:
            assert len(tx.eligible_as_of(NOW)) == OFFERS

    def at_start() -> None:
        with store.read() as tx:
            assert None not in tx.prices_at([(run.offer_id, run.start_ms) for run in runs])

    def costs() -> None:
        with store.read() as tx:
            changes = tx.price_changes_of(runs)
        bills.append(
            sum(cost_nano_usd(each, run.start_ms, run.end_ms) for each, run in zip(changes, runs, strict=True))
        )

    polls = []
    for at in range(NOW, NOW + repetitions * 60_000, 60_000):
        polls.append([PricePoint(offer.id, at + n, at, at, SOURCE) for n, offer in enumerate(market.offers)])
    coming = iter(polls)

    def append() -> None:
        points = next(coming)
        at = points[0].effective_at_ms
        with store.write() as tx:
            assert tx.add_prices(points) == OFFERS
            tx.record_poll("aws", at, at, OFFERS, OFFERS, None)

    claims = []
    cpu = []
    for what, work, target in (
        (f"latest price of {OFFERS} offers", latest, 50),
        (f"price at the start of {RUNS} runs", at_start, 50),
        (f"cost of {RUNS} run intervals", costs, 500),
        (f"storing a poll of {OFFERS} changes", append, 300),
    ):
        wall_ms, cpu_ms = _timed(work, repetitions)
        claims.append(Claim(f"{name}: {what}", wall_ms, "ms", target))
        cpu.append(f"{cpu_ms:.0f}")
    note = f"{name}, CPU ms of this process (without a server's), in the same order: {', '.join(cpu)}"
    return claims, bills[0], note


def _timed(work: Callable[[], None], repetitions: int) -> tuple[float, float]:
    """Median wall and CPU milliseconds, which differ widely on a busy machine."""
    took, worked = [], []
    for _ in range(repetitions):
        started, started_cpu = perf_counter(), process_time()
        work()
        took.append(perf_counter() - started)
        worked.append(process_time() - started_cpu)
    return median(took) * 1000, median(worked) * 1000


def _bytes_sqlite(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("tradewind.db*"))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="300,000 rows")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    options = parser.parse_args(arguments)
    changes = QUICK_CHANGES if options.quick else CHANGES
    market = seeded_prices(changes)
    rows = OFFERS * changes
    claims: list[Claim] = []
    notes = [f"{rows:,} price changes of {OFFERS:,} offers in 180 days; medians of 7"]
    bills = set()
    clock = VirtualClock(NOW)
    if options.only != "postgres":
        with tempfile.TemporaryDirectory(prefix="tw-bench-") as made:
            folder = Path(made)
            store = Store.open(f"sqlite:///{folder}/tradewind.db", clock)
            started = perf_counter()
            load(store, market)
            notes.append(f"SQLite loaded in {perf_counter() - started:.0f} s")
            found, bill, note = measure("SQLite", store, market, 7)
            notes.append(note)
            store.close()
            claims += [*found, Claim("SQLite: bytes per row", _bytes_sqlite(folder) / rows, "bytes")]
            bills.add(bill)
    if options.only != "sqlite":
        try:
            with server(AS_INSTALLED) as postgres:
                store = Store.open(postgres.create("bench"), clock)
                started = perf_counter()
                load(store, market)
                notes.append(f"Postgres loaded in {perf_counter() - started:.0f} s")
                postgres.sql("VACUUM ANALYZE", "bench")
                found, bill, note = measure("Postgres", store, market, 7)
                notes.append(note)
                store.close()
                ((size,),) = postgres.sql("SELECT pg_total_relation_size('price_point')", "bench")
            claims += [*found, Claim("Postgres: bytes per row", size / rows, "bytes")]
            bills.add(bill)
        except RuntimeError as error:
            notes.append(str(error))
    if len(bills) > 1:
        notes.append(f"the databases disagree about the cost of the runs: {bills}")
    code = show("Store queries", claims, as_json=options.json, notes=notes)
    return code or (1 if len(bills) > 1 else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
