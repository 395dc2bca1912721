"""What the control plane does for prices beside its tick, turn by turn on a virtual clock."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.machines.collect import collect
from orchestrator.installation import Installation
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.listing import offers
from orchestrator.services.prices.periodic import DAY_MS, PeriodicPriceTasks
from providers.clock import SystemClock, VirtualClock
from providers.collect.runner import Collector, SourceSpec
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

HEAD = "provider,region,instance_type,gpu,gpu_count,capacity_type,price_per_hour\n"
ROW = "verda,FIN-01,8H100.80S,H100,8,spot,9.12\n"


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "verda.csv"
    path.write_text(HEAD + ROW)
    return path


@pytest.fixture
def fed(installation: Installation, feed: Path, tmp_path: Path) -> Installation:
    """The installation with a feed configured."""
    settings = {
        "state_dir": str(installation.state_dir),
        "providers.enabled": "fake",
        "prices.sources": f'{{"feed:verda": {{"at": "{feed}", "every_s": 600}}}}',
    }
    return replace(installation, config=load_config(settings, environ={}, cwd=tmp_path))


def polls(installation: Installation) -> list[tuple[str, int, str | None]]:
    with installation.store.read() as tx:
        return [(each.region, each.changed, each.error) for each in tx.polls("feed", 100)][::-1]


def test_each_source_is_polled_at_its_own_interval_and_failures_are_reported_once(
    fed: Installation, feed: Path, clock: VirtualClock
) -> None:
    said: list[str] = []
    tasks = PeriodicPriceTasks(fed, None, said.append)
    assert 1 <= tasks.turn() <= 60
    assert polls(fed) == [("all", 1, None)]
    tasks.turn()
    assert len(polls(fed)) == 1  # not its turn
    clock.advance(700)
    tasks.turn()
    assert polls(fed)[1:] == [("all", 0, None)]  # no change is not no data
    feed.unlink()
    for _ in range(3):
        clock.advance(4000)
        tasks.turn()
    assert [each[2] is None for each in polls(fed)[2:]] == [False, False, False]
    feed.write_text(HEAD + ROW)
    clock.advance(4000)
    tasks.turn()
    assert [text.partition(":")[0] for text in said] == ["prices", "prices"]
    assert "cannot be read" in said[0]
    assert "recovered" in said[1]


def test_days_are_rolled_up_once_they_are_over_and_months_archived(
    installation: Installation, clock: VirtualClock, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    tasks = PeriodicPriceTasks(installation, None, print)
    collect(installation)
    tasks.turn()
    (first,) = {point.offer_id for point in _prices(installation)[:1]}
    clock.advance(40 * DAY_MS / 1000)
    collect(installation)
    tasks.turn()
    with installation.store.read() as tx:
        assert len(tx.price_days(first, 0, clock.now_ms())) >= 39
        done = tx.task_done_ms("roll-up"), tx.task_done_ms("archive")
    assert done == (clock.now_ms(), clock.now_ms())
    assert sorted(path.name for path in (installation.state_dir / "archive").iterdir())
    tasks.turn()
    clock.advance(DAY_MS / 1000)
    tasks.turn()
    with installation.store.read() as tx:
        assert (tx.task_done_ms("roll-up"), tx.task_done_ms("archive")) == (clock.now_ms(), done[1])


def test_a_simulated_clock_that_runs_ahead_makes_no_real_price_leave(installation: Installation) -> None:
    pytest.importorskip("pyarrow")
    now = SystemClock().now_ms()
    clock = VirtualClock(now, factor=600.0)
    real = Offer("azure", "eastus", "", "ND96", "H100", 8, 0, 0, CapacityType.SPOT)
    with installation.store.write() as tx:
        tx.put_offers("azure", [real], source="azure-prices", region="eastus")
        tx.add_prices(PricePoint(real.id, days, now - days * DAY_MS, now - days * DAY_MS, "x") for days in (90, 60, 1))
    tasks = PeriodicPriceTasks(replace(installation, clock=clock), None, print)
    for _ in range(2):
        tasks.turn()
        clock.advance(500 * DAY_MS / 1000 / 600)
    tasks.turn()
    months = {path.stem for path in (installation.state_dir / "archive").iterdir()}
    assert f"prices-{datetime.fromtimestamp(now / 1000, UTC):%Y-%m}" not in months  # it is not over
    assert len(months) >= 1
    with installation.store.read() as tx:
        assert [price for _, price in tx.price_changes(real.id, 0, 2**50)] == [90, 60, 1]
        assert tx.kept_from_ms() < now - 90 * DAY_MS


def _prices(installation: Installation):
    with installation.store.read() as tx:
        return tx.eligible_as_of(installation.clock.now_ms())


def test_a_collection_under_way_ends_with_the_control_plane(fed: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed is a pipe that nobody writes to: its child would wait for ever."""
    import os

    pipe = fed.state_dir / "pipe.csv"
    os.mkfifo(pipe)
    spec = SourceSpec("feed:verda", {"at": str(pipe)})
    started = threading.Event()
    real = Collector.collect

    def collecting(self: Collector) -> object:
        started.set()
        return real(self)

    monkeypatch.setattr(Collector, "collect", collecting)
    monkeypatch.setattr("orchestrator.services.prices.periodic.configured_sources", lambda _: [spec])
    tasks = PeriodicPriceTasks(fed, None, print)
    with tasks:
        assert started.wait(30)
    assert not tasks._thread.is_alive()
    assert polls(fed) == []


def test_offers_collected_elsewhere_are_shown_and_no_job_is_placed_there(fed: Installation) -> None:
    clock = SystemClock()  # as the child that read the table
    fed = replace(fed, clock=clock)
    collect(fed)
    PeriodicPriceTasks(fed, None, print).turn()
    with fed.store.read() as tx:
        market = snapshot.market(tx, clock.now_ms(), fed.config)
    assert {market.place(row)[0] for row in range(len(market))} == {"fake"}
    shown = offers(fed.config, lambda: fed, OfferQuery(clouds=("verda",)), now_ms=clock.now_ms())
    here = [row for row in shown.offers if not row.source.startswith("catalogue")]
    assert [(row.instance_type, row.nano_usd_per_hour, row.enabled) for row in here] == [
        ("8H100.80S", 9_120_000_000, False)
    ]
    assert here[0].age_s == pytest.approx(0, abs=60)
    assert len(shown.offers) > 1  # of everything else the catalogue speaks


def test_what_collectors_find_of_an_enabled_provider_is_a_price_event(installation: Installation) -> None:
    with installation.store.write() as tx:
        tx.record_poll("fake", 1, 2, 3, 4, None, source="fake-spot")
        tx.record_poll("aws", 1, 2, 3, 5, None, source="aws-spot")
        tx.record_poll("fake", 1, 2, 3, 6, None)  # the tick's own: it knows of it
    with installation.store.read() as tx:
        seq, changed = tx.changes_since(0, installation.providers)
        assert changed == 4
        assert tx.changes_since(seq, installation.providers) == (seq, 0)
