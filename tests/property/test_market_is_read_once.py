"""What a decision reads of the market is the same whether or not it was read before, whatever was written since."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import Config, load_config
from orchestrator.engine.inputs.market_reader import AVAILABILITY_WINDOW_MS, MarketReader
from orchestrator.engine.inputs.price_courses import EVERY_MS
from orchestrator.market import Market
from orchestrator.model import Job, JobSpec, Run
from orchestrator.store import Store, Tx
from orchestrator.store.market.flags import NewFlag
from providers.base import Covered, Quota
from providers.clock import VirtualClock
from providers.collect.facts import Signal
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.rig import train_spec

DAY_MS = 86_400_000
T0 = VirtualClock().start_ms // EVERY_MS * EVERY_MS
OFFERS = [
    Offer(cloud, "r", f"z{number}", "t", gpu, 1, 8, 2**30, kind)
    for cloud in ("aws", "fake", "gcp")
    for number, gpu in enumerate(("V100", "T4"))
    for kind in CapacityType
]
REPORTED = (
    *("price", "effective_at", "observed_at", "backed_off_at", "backed_off_until", "backed_off_by_loss", "losses"),
    *("exposure_ms", "hazard", "doubts", "fresh_s", "polled", "startup", "starts", "level", "priors", "alive", "at"),
)
ENABLED = ("aws", "gcp")
minutes = st.integers(0, 90)
which = st.integers(0, len(OFFERS) - 1)
prices = st.integers(1, 10**11)


class Undone(Exception):
    """Leaves the store as it was."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path_factory.mktemp('read')}/tradewind.db", VirtualClock())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("config")
    loaded = load_config({"state_dir": str(folder)}, environ={}, cwd=folder)
    return replace(loaded, providers=replace(loaded.providers, enabled=ENABLED))


@contextmanager
def undone(store: Store) -> Iterator[Tx]:
    with suppress(Undone), store.write() as tx:
        yield tx
        raise Undone


def price(offer: Offer, nano_usd: int, at_ms: int, observed_ms: int) -> PricePoint:
    return PricePoint(offer.id, nano_usd, at_ms, observed_ms, "test")


def write(tx: Tx, what: str, number: int, amount: int, minute: int, now_ms: int) -> None:
    """One of the things that change a market."""
    offer = OFFERS[number]
    if what == "price":
        tx.add_prices([price(offer, amount, now_ms, now_ms)])
    elif what == "announced":
        tx.add_prices([price(offer, amount, now_ms + minute * 60_000, now_ms)])
    elif what == "late":
        tx.add_prices([price(offer, amount, now_ms - minute * 60_000, now_ms)])
    elif what == "ahead of the clock":
        tx.add_prices([price(offer, amount, now_ms, now_ms + minute * 60_000)])
    elif what == "unlisted":
        there = [each for each in OFFERS if each.provider == offer.provider and each != offer]
        tx.put_offers(offer.provider, there)
    elif what == "listed":
        tx.put_offers(offer.provider, [each for each in OFFERS if each.provider == offer.provider])
    elif what == "flag":
        tx.put_flags(offer.provider, "r", now_ms, [NewFlag("outlier", offer.id, "odd", offer.id)])
    elif what == "sound":
        tx.clear_flags(offer.id, ["outlier"], now_ms)
    elif what == "poll":
        tx.record_poll(offer.provider, now_ms, now_ms, 4, 1, None)
    elif what == "refused":
        tx.add_availability(offer.id, now_ms, "refused")
    elif what == "quota":
        covered = Covered("machines", spot=offer.capacity_type is CapacityType.SPOT)
        tx.set_quotas(offer.provider, [Quota("q", "r", minute % 9, amount % 3, covered)], now_ms)
    elif what == "started":
        job = Job(f"job_{offer.id}/{now_ms}/{minute}", JobSpec("a", train_spec(9)), "me", now_ms, "running")
        if not tx.jobs_of([job.id]):
            tx.add_job(job)
            tx.add_run(
                Run(
                    id=f"run_{job.id}",
                    job_id=job.id,
                    generation=1,
                    offer_id=offer.id,
                    instance_id="i",
                    state="training",
                    created_at_ms=now_ms,
                    billed_from_ms=now_ms,
                    training_from_ms=now_ms + amount % 10**6,
                )
            )
    elif what in ("risk", "risk ahead of the clock"):
        rate, at_ms = minute / 100, now_ms if what == "risk" else now_ms + minute * 60_000
        tx.add_risks([Signal("eviction_percent", "aws", "r", "", "t", rate, rate + 1, now_ms, at_ms, "test")])


def same(one: Market, other: Market) -> bool:
    """In everything that it was built from."""
    reported = [
        field.name
        for field in fields(Market)
        if field.name
        not in ("listing", "announced", "older_cells", "hashed", "known_rates", "tariff", "courses", "seen")
    ]
    pairs = [(name, getattr(one, name), getattr(other, name)) for name in reported]
    courses = all(np.array_equal(each.table, other.courses[name].table) for name, each in one.courses.items())
    return (
        one.digest == other.digest
        and one.ids == other.ids
        and one.courses.keys() == other.courses.keys()
        and courses
        and all(
            np.array_equal(a, b) if isinstance(a, np.ndarray) else name == "site_starts" or a == b
            for name, a, b in pairs
        )
    )


writes = st.tuples(
    st.sampled_from(
        [
            *("price", "announced", "late", "ahead of the clock", "unlisted", "listed"),
            *("flag", "sound", "poll", "quota", "refused", "started", "risk", "risk ahead of the clock"),
        ]
    ),
    which,
    prices,
    minutes,
)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(which, prices, st.integers(0, 20)), max_size=12),
    st.lists(st.tuples(st.lists(writes, max_size=3), minutes, st.sets(which, max_size=2)), min_size=1, max_size=6),
)
def test_a_market_brought_up_to_date_is_the_market_read_from_scratch(store, config, history, rounds):
    reader, now_ms = MarketReader(), T0
    with undone(store) as tx:
        for cloud in ("aws", "fake", "gcp"):
            tx.put_offers(cloud, [each for each in OFFERS if each.provider == cloud])
        tx.add_prices(
            price(OFFERS[n], nano, T0 - days * 86_400_000, T0 - days * 86_400_000) for n, nano, days in history
        )
        for written, minute, used in rounds:
            for what, number, amount, later in written:
                write(tx, what, number, amount, later, now_ms)
            now_ms += minute * 60_000
            ids = [OFFERS[number].id for number in used]
            assert same(reader.read(tx, now_ms, config, ids), MarketReader().read(tx, now_ms, config, ids))


@pytest.mark.parametrize("newest", [True, False], ids=["the newest of its offer", "older than the newest"])
def test_a_price_that_is_learned_late_counts_among_the_usual_ones(store: Store, config: Config, newest: bool) -> None:
    spot = next(each for each in OFFERS if each.provider == "aws" and each.spot)
    with undone(store) as tx:
        tx.put_offers("aws", [spot])
        tx.add_prices([price(spot, 10**9, T0 - 9 * DAY_MS, T0)])
        if not newest:
            tx.add_prices([price(spot, 3 * 10**9, T0 - DAY_MS, T0)])
        reader = MarketReader()
        before = reader.read(tx, T0 + 1, config)
        tx.add_prices([price(spot, 2 * 10**9, T0 - 2 * DAY_MS, T0 + 2)])
        after = reader.read(tx, T0 + 3, config)
        assert same(after, MarketReader().read(tx, T0 + 3, config))
        assert after.level.tolist() != before.level.tolist()


@pytest.mark.parametrize("what", ["risk ahead of the clock", "announced"])
def test_what_is_known_only_later_counts_from_then_on(store: Store, config: Config, what: str) -> None:
    spot = next(each for each in OFFERS if each.provider == "aws" and each.spot)
    reader = MarketReader()
    with undone(store) as tx:
        tx.put_offers("aws", [spot])
        write(tx, what, OFFERS.index(spot), 10**9, 10, T0)
        markets = [reader.read(tx, T0 + minute * 60_000, config) for minute in (9, 10, 11)]
        for minute, market in zip((10, 11), markets[1:], strict=True):
            assert same(market, MarketReader().read(tx, T0 + minute * 60_000, config))
        assert not same(markets[0], markets[1])


def test_a_loss_of_long_ago_counts_no_more(store: Store, config: Config) -> None:
    spot = next(each for each in OFFERS if each.provider == "aws" and each.spot)
    reader = MarketReader()
    with undone(store) as tx:
        tx.put_offers("aws", [spot])
        tx.add_availability(spot.id, T0 - AVAILABILITY_WINDOW_MS + 60_000, "lost")
        markets = [reader.read(tx, T0 + minute * 60_000, config) for minute in (0, 2)]
        assert [int(each.losses[0]) for each in markets] == [1, 0]
        assert same(markets[-1], MarketReader().read(tx, T0 + 2 * 60_000, config))


def test_what_did_not_change_is_not_read_again(store: Store, config: Config) -> None:
    with undone(store) as tx:
        tx.put_offers("aws", [each for each in OFFERS if each.provider == "aws"])
        tx.add_prices([price(each, 10**9, T0, T0) for each in OFFERS if each.provider == "aws"])
        reader = MarketReader()
        first = reader.read(tx, T0, config)
        tx.add_prices([price(OFFERS[0], 2 * 10**9, T0 + 1000, T0 + 1000)])
        second = reader.read(tx, T0 + 1000, config)
        assert second.listing is first.listing
        assert second.price.tolist() != first.price.tolist()
        tx.put_offers("aws", [])
        assert len(reader.read(tx, T0 + 2000, config)) == 0
