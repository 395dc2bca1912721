"""A good answer with next to nothing in it: what it does not name stays until a second poll agrees."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from orchestrator.cli.render import render
from orchestrator.cli.render.text import Screen
from orchestrator.config import load_config
from orchestrator.engine.machines.collect import collect_from, collector
from orchestrator.installation import Installation
from orchestrator.prices.sink import StoreSink
from orchestrator.services.doctor import state as doctor
from orchestrator.services.prices import prices
from orchestrator.store import Store
from providers.clock import SystemClock, VirtualClock
from providers.collect.runner import PollOutcome, SourceSpec
from providers.fake import FakeCloud, FakeProvider
from providers.fake.cloud import default_catalog
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

T0 = 1_700_000_000_000
HEAD = "provider,region,instance_type,gpu,gpu_count,capacity_type,price_per_hour\n"
ROWS = [f"verda,fin,h{count},H100,{count},on_demand,{3 * count}\n" for count in (1, 2, 4, 8)]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    clock = VirtualClock(T0)
    config = load_config({"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}, environ={}, cwd=tmp_path)
    config.state_dir.mkdir()
    store = Store.open(config.store_url, clock)
    opened = Installation(config, clock, store, {"fake": FakeProvider(clock, cloud=FakeCloud(clock))})
    yield opened
    opened.close()


MACHINES = [
    Offer("verda", "fin", "", f"h{count}", "H100", count, 0, 0, CapacityType.ON_DEMAND) for count in (1, 2, 4, 8)
]


class Polls:
    """Whole polls of a feed whose usual interval is 300 s, at real instants."""

    def __init__(self, installation: Installation) -> None:
        self.installation, self.at_ms = installation, T0
        self.reported: list[PollOutcome] = []
        self.sink = StoreSink(installation.store, self.reported.append)

    def poll(self, named: list[Offer], after_s: float = 0.0) -> str:
        self.at_ms += round(after_s * 1000)
        self.sink.offers("feed:verda", "all", named)
        self.sink.prices("feed:verda", "all", [PricePoint(each.id, 1, self.at_ms, self.at_ms, "s") for each in named])
        self.sink.ended(PollOutcome("feed:verda", "all", self.at_ms, self.at_ms, len(named)))
        return self.reported[-1].suspect

    def listed(self) -> int:
        with self.installation.store.read() as tx:
            return len(tx.offers(["verda"]))


@pytest.fixture
def feed(installation: Installation) -> Polls:
    return Polls(installation)


def test_an_empty_answer_takes_no_offer_away_before_a_poll_of_another_interval_agrees(feed: Polls) -> None:
    assert feed.poll(MACHINES) == ""
    assert "lists 0 of 4 offers" in feed.poll([], 300)
    assert feed.listed() == 4
    assert "lists 0 of 4 offers" in feed.poll([], 10), "the same interval proves nothing"
    assert feed.listed() == 4
    assert feed.poll([], 300) == ""
    assert feed.listed() == 0


def test_what_a_suspect_poll_does_not_name_grows_old_and_one_good_poll_refutes_it(feed: Polls) -> None:
    feed.poll(MACHINES)
    with feed.installation.store.read() as tx:
        heard = tx.polled()
    feed.poll(MACHINES[:1], 300)
    with feed.installation.store.read() as tx:
        assert tx.polled() == heard, "nobody has seen the others"
    assert feed.poll(MACHINES, 300) == ""
    assert "lists 1 of 4" in feed.poll(MACHINES[:1], 300), "it is alone again"


def test_a_unit_that_was_renamed_tells_what_its_rows_were_dropped_for(
    installation: Installation, tmp_path: Path
) -> None:
    reported: list[PollOutcome] = []
    for rows in (ROWS, [row.replace("H100", "H100-Hours") for row in ROWS]):
        (tmp_path / "verda.csv").write_text(HEAD + "".join(rows))
        specs = [SourceSpec("feed:verda", {"at": str(tmp_path / "verda.csv")})]
        collector(installation.store, installation.clock, specs, random.Random(1), reported.append).collect()
    assert [each.suspect.partition(",")[0] for each in reported] == ["", "lists 0 of 4 offers; the source sent 4 rows"]
    assert reported[1].suspect.endswith("flagged 4 unknown_gpu")
    with installation.store.read() as tx:
        assert len(tx.eligible_as_of(2**50)) == 4, "what is not believed leaves nothing out"
        assert [row.flag for row in tx.flags()] == ["unknown_gpu"] * 4, "and is kept"


def test_half_of_the_offers_may_go_at_once(feed: Polls) -> None:
    feed.poll(MACHINES)
    assert feed.poll(MACHINES[:2], 300) == ""
    assert feed.listed() == 2


def test_status_and_doctor_tell_of_a_suspect_poll(feed: Polls) -> None:
    feed.poll(MACHINES)
    assert doctor.collected_prices(feed.installation).state == "ok"
    feed.poll([], 300)
    shown = render(prices.status(feed.installation), Screen())
    assert "suspect" in shown
    assert "lists 0 of 4 offers" in shown
    check = doctor.collected_prices(feed.installation)
    assert (check.state, "lists 0 of 4 offers" in check.found) == ("warn", True)


def test_an_enabled_provider_that_names_nothing_keeps_its_offers_for_a_while(installation: Installation) -> None:
    provider = installation.providers["fake"]
    assert isinstance(provider, FakeProvider)
    ids = [offer.id for offer, _ in default_catalog()]

    def polled(after_s: float) -> int:
        installation.clock.sleep(after_s)
        collect_from(installation, None, provider)
        with installation.store.read() as tx:
            return len(tx.offers(["fake"]))

    assert polled(0) == len(ids)
    for name in ids:
        provider.cloud.withdraw(name)
    assert polled(60) == len(ids)
    assert doctor.prices(installation, "fake").state == "warn"
    assert polled(60) == len(ids)
    assert polled(200) == 0
    assert doctor.prices(installation, "fake").state == "ok"


def test_what_is_real_and_what_is_simulated_is_dated_by_its_own_clock(installation: Installation) -> None:
    """The market here runs 600 times as fast as the real one, of which a feed tells."""
    real = SystemClock()
    fast = replace(installation, clock=VirtualClock(T0, factor=600.0))
    prices.collect(fast)
    now = real.now_ms()
    with fast.store.write() as tx:
        tx.put_offers("feed", MACHINES, source="feed:verda")
        tx.record_poll("feed", now - 60_000, now - 60_000, 4, 4, None, source="feed:verda", region="all")
    fast.clock.sleep(10.0)
    view = prices.status(fast)
    found = {each.source: each for each in view.regions}
    assert found["fake"].age_s == pytest.approx(6000, abs=60)
    assert found["feed:verda"].age_s == pytest.approx(60, abs=30)
    assert {name: each.simulated for name, each in found.items()} == {"fake": True, "feed:verda": False}
    assert abs(view.at_ms - now) < 60_000
    shown = render(view, Screen())
    assert "the prices of fake are simulated" in shown
    assert [line.split()[5] for line in shown.splitlines()[1:3] if "fake" in line] == ["market"]


def test_watching_dates_each_change_by_when_it_was_learned_and_names_its_source(installation: Installation) -> None:
    prices.collect(installation)
    learned = T0 + 7_000

    class Waking(VirtualClock):
        """Something happens while the watcher sleeps."""

        def sleep(self, wall_s: float) -> None:
            super().sleep(wall_s)
            with installation.store.write() as tx:
                tx.put_offers("feed", MACHINES[:1], source="feed:verda")
                tx.add_prices([PricePoint(MACHINES[0].id, 5, T0, learned, "our table")])
                tx.record_poll(
                    "feed", learned, learned, 0, 0, None, source="feed:v", region="all", suspect="names none"
                )

    seen = list(islice(prices.watch(replace(installation, clock=Waking(T0 + 10**9, factor=600.0))), 2))
    assert [(each.at_ms, each.source, each.simulated, each.error) for each in seen] == [
        (learned, "our table", False, None),
        (learned, "feed:v", False, "names none"),
    ]
