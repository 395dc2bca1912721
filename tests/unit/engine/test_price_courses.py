"""What the store's prices tell of the hours to come, and what a decision makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.machines.collect import BEFORE_MS, collect
from orchestrator.installation import Installation
from orchestrator.model import Job, JobSpec, Placement, TrainSpec
from orchestrator.policy import decide
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.fake import FakeCloud, FakeProvider
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

HOUR_MS = 3_600_000
HOURS = 7 * 24
EVERY_H = 12  # a dip of one hour each


def offer(number: int) -> Offer:
    return Offer("fake", "r", f"z{number}", "t", "V100", 1, 8, 64, CapacityType.SPOT)


DIPPING = [offer(number) for number in range(EVERY_H)]
STEADY = offer(99)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    given = {"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}
    return load_config(given, cwd=tmp_path, environ={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    clock = VirtualClock()
    clock.advance((HOURS + 0.5) * 3600)
    opened = Store.open(f"sqlite:///{tmp_path}/tradewind.db", clock)
    yield opened
    opened.close()


def reported(store: Store, since_h: int) -> None:
    """A week of prices: one offer at $0.90; the others at $1.00, each of them at $0.50 for one hour of twelve. Number 0
    is in its dip now. What is older than `since_h` was not heard of."""
    now_ms = store._clock.now_ms()
    begin_ms = now_ms - HOUR_MS // 2 - HOURS * HOUR_MS
    points = [PricePoint(STEADY.id, usd("0.90"), begin_ms, begin_ms, "test")]
    for number, each in enumerate(DIPPING):
        for hour in range(HOURS - since_h, HOURS + 1):
            dollars = "0.50" if (hour - number) % EVERY_H == HOURS % EVERY_H else "1.00"
            at_ms = begin_ms + hour * HOUR_MS
            points.append(PricePoint(each.id, usd(dollars), at_ms, at_ms, "test"))
    with store.write() as tx:
        tx.put_offers("fake", [*DIPPING, STEADY])
        tx.add_prices(points)
        tx.record_poll("fake", now_ms, now_ms, len(DIPPING) + 1, len(points), None)


def placed(store: Store, config: Config, hours: float) -> Placement:
    """A job of so many hours whose speed is known."""
    now_ms = store._clock.now_ms()
    train = TrainSpec("m:f", None, {}, "/w", {}, (), round(hours * 3600), None)
    job = Job("job_1", JobSpec("j", train), "ann", now_ms, "queued")
    with store.write() as tx:
        tx.add_job(job)
        tx.add_perf(job.id, "V100", 1, 1.0, 10_000, now_ms)
    with store.read() as tx:
        seen = snapshot.inputs(tx, now_ms, config)
    return decide(seen.demands, seen.market, seen.perf, seen.running, limits=snapshot.limits(config)).placements[0]


def test_a_momentary_low_price_does_not_attract_a_job_of_hours(store: Store, config: Config) -> None:
    reported(store, HOURS)
    placement = placed(store, config, 10)
    assert placement.offer_id == STEADY.id
    dip = next(each for each in placement.alternatives if each.offer_id == DIPPING[0].id)
    assert dip.cost_nano_usd is not None
    assert dip.cost_nano_usd > 10 * usd("0.90"), "it costs a dollar again within the hour"
    assert re.search(r"more to finish: its price is likely to rise by \d+%", dip.reason)


def test_a_job_that_is_through_within_the_low_takes_it(store: Store, config: Config) -> None:
    reported(store, HOURS)
    assert placed(store, config, 0.2).offer_id == DIPPING[0].id


def test_a_low_that_nothing_is_known_of_is_the_price(store: Store, config: Config) -> None:
    reported(store, 0)
    assert placed(store, config, 10).offer_id == DIPPING[0].id


def test_the_first_poll_hears_of_the_week_before(tmp_path: Path, config: Config) -> None:
    clock = VirtualClock()
    cloud = FakeCloud(clock, catalog=[(STEADY, usd("1.00"))])
    for hour in range(1, 300):
        cloud.set_price(STEADY.id, usd("1.00") + hour, clock.now_ms() + hour * HOUR_MS)
    clock.advance(240.5 * 3600)
    store = Store.open(f"sqlite:///{tmp_path}/tradewind.db", clock)
    collect(Installation(config, clock, store, {"fake": FakeProvider(clock, cloud=cloud)}))
    with store.read() as tx:
        heard = tx.price_points(STEADY.id, 0, clock.now_ms() + 1)
    store.close()
    assert len(heard) == BEFORE_MS // HOUR_MS + 1
    assert heard[0].effective_at_ms <= clock.now_ms() - BEFORE_MS
    assert {each.observed_at_ms for each in heard} == {clock.now_ms()}
