"""Several sources name one offer: one of them counts at a time, and what another one says touches nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.engine.machines.collect import collector
from orchestrator.installation import Installation
from orchestrator.prices.collected import collected, elsewhere
from orchestrator.store import Store
from providers.catalog import load
from providers.clock import VirtualClock
from providers.collect.child import Task
from providers.collect.facts import Finding, Flag, PollResult
from providers.collect.runner import Collector, SourceSpec, _OpenPolls
from providers.collect.wire import Regions, of_result
from providers.errors import FormatError
from providers.fake import FakeCloud, FakeProvider
from providers.feed.source import Feed
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

T0 = 1_790_000_000_000  # some days after the newest fact of the catalogue
HOUR_MS = 3_600_000
HEAD = "provider,region,zone,instance_type,gpu,gpu_count,capacity_type,price_per_hour,effective_at\n"
REGION = "us-east-1"
ZONES = ("use1-az1", "use1-az2", "use1-az3")
ROW = "aws,us-east-1,use1-az1,p5.48xlarge,H100,8,spot,{},\n"


def spot(zone: str = ZONES[0]) -> Offer:
    return Offer("aws", REGION, zone, "p5.48xlarge", "H100", 8, 192, 2 << 40, CapacityType.SPOT)


class Sources:
    """Clouds and feeds as their children answer, handed to the collector that writes to a store."""

    def __init__(self, installation: Installation, clock: VirtualClock, folder: Path) -> None:
        self.installation, self.clock, self.folder = installation, clock, folder

    def collecting(self, name: str) -> Collector:
        specs = [SourceSpec(name, {"at": "none"} if name.startswith("feed") else {})]
        made = collector(
            self.installation.store, self.clock, specs, random.Random(1), reserved=self.installation.providers
        )
        made._remember()
        return made

    def poll(self, name: str, result: PollResult) -> None:
        began = self.clock.now_ms()
        self.clock.advance(5)
        collecting, round_ = self.collecting(name), _OpenPolls([Task(name, {}, [result.region])])
        for message in of_result(name, result, began, self.clock.now_ms()):
            collecting._take(round_, message)

    def aws(self, dollars: float, offers: Sequence[Offer] = (spot(),), *, source: str = "aws-spot", at_ms: int = T0):
        found = Finding(REGION)
        found.page(len(offers))
        for offer in offers:
            found.price(offer, PricePoint(offer.id, usd(dollars), at_ms, self.clock.now_ms(), "AWS"))
        self.poll(source, found.result())

    def feed(self, rows: str, name: str = "feed:table") -> None:
        path = self.folder / "table.csv"
        path.write_text(HEAD + rows)
        self.poll(name, Feed(name=name, at=str(path)).poll("all", self.clock.now_ms(), None))

    @property
    def present(self) -> dict[str, tuple[Offer, int]]:
        """What can be chosen of clouds that are not enabled, by id."""
        reported = elsewhere(collected(self.installation), self.installation.providers)
        return {each.offer.id: (each.offer, each.price.nano_usd_per_hour) for each in reported}

    @property
    def flags(self) -> list[str]:
        with self.installation.store.read() as tx:
            return [flag.flag for flag in tx.flags()]


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[Sources]:
    clock = VirtualClock(T0)
    config = load_config({"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}, environ={}, cwd=tmp_path)
    config.state_dir.mkdir()
    cloud = FakeProvider(clock, cloud=FakeCloud(clock))
    opened = Installation(config, clock, Store.open(config.store_url, clock), {"fake": cloud})
    yield Sources(opened, clock, tmp_path)
    opened.close()


def test_a_clouds_own_source_counts_before_a_feed_while_it_is_heard(sources: Sources) -> None:
    for _ in range(4):
        sources.aws(20.0)
        sources.feed(ROW.format(25))
        assert sources.present[spot().id] == (spot(), usd(20))
        sources.clock.advance(300)
    with sources.installation.store.read() as tx:
        assert len(tx.price_points(spot().id, 0, 2**50)) == 1
        (said,) = tx.flags()
    assert (said.flag, said.nano_usd_per_hour, said.source) == ("not_its_own", usd(25), "feed:table")
    assert "aws-spot" in said.detail


def test_a_feed_counts_once_the_clouds_own_source_fell_silent_and_gives_way_when_that_is_heard_again(
    sources: Sources,
) -> None:
    sources.aws(20.0)
    sources.clock.advance(2 * 3600)  # four intervals of its source are less
    sources.feed(ROW.format(25))
    assert sources.present[spot().id][1] == usd(25)
    sources.aws(20.0)
    assert sources.present[spot().id][1] == usd(20)


def test_of_two_feeds_that_disagree_the_first_counts_while_it_is_heard(sources: Sources) -> None:
    for _ in range(3):
        sources.feed(ROW.format(25), "feed:a")
        sources.feed(ROW.format(30), "feed:b")
        assert sources.present[spot().id][1] == usd(25)
        sources.clock.advance(300)
    with sources.installation.store.read() as tx:
        assert len(tx.price_points(spot().id, 0, 2**50)) == 1


@pytest.mark.parametrize("row", ["T4,1,spot,20", "H1OO,8,spot,20", "H100,8,spot,0.5"])
def test_a_row_of_a_feed_changes_nothing_of_an_offer_that_its_cloud_tells(sources: Sources, row: str) -> None:
    sources.aws(20.0)
    sources.feed(f"aws,us-east-1,use1-az1,p5.48xlarge,{row},\n")
    assert sources.present[spot().id] == (spot(), usd(20))
    sources.clock.advance(600)
    sources.feed("x,r,z,t,H100,8,spot,3.0,\n")
    sources.clock.advance(600)
    sources.feed("x,r,z,t,H100,8,spot,3.0,\n")
    assert spot().id in sources.present, "nor when it falls silent of it"


def test_a_feed_that_fell_silent_makes_no_price_of_another_source_old(sources: Sources) -> None:
    sources.feed("aws,us-east-1,use1-az9,p5.48xlarge,H100,8,spot,25,\n")
    sources.aws(20.0)
    sources.clock.advance(30 * 24 * 3600)
    sources.aws(20.0)  # unchanged, and confirmed
    sources.clock.advance(60)
    reported = {each.offer.id: each.known_ms for each in collected(sources.installation).reported}
    assert sources.clock.now_ms() - reported[spot().id] < 120_000
    assert sources.clock.now_ms() - reported[spot("use1-az9").id] > 29 * 24 * HOUR_MS


def test_an_implausible_on_demand_price_flags_no_spot_price(sources: Sources) -> None:
    offers = [spot(zone) for zone in ZONES]
    sources.aws(20.0, offers)
    sources.feed("aws,us-east-1,,p5.48xlarge,H100,8,on_demand,0.98,\n")
    assert sources.flags == ["implausible"]
    sources.aws(20.5, offers, at_ms=T0 + 1)
    assert sources.flags == ["implausible"]
    assert [sources.present[offer.id][1] for offer in offers] == [usd("20.5")] * 3


def test_a_row_that_cannot_be_read_hides_no_listed_offer(sources: Sources) -> None:
    before = sources.present
    victim = next(name for name in before if name.endswith("/p5.48xlarge/on_demand"))
    _, region, zone, machine, capacity = victim.split("/")
    sources.feed(f"aws,{region},{zone},{machine},H1OO,8,{capacity},50.0,\n")
    assert sources.flags == ["unknown_gpu"]
    assert sources.present == before


def test_a_feed_that_no_longer_names_an_offer_of_a_cloud_with_sources_of_its_own_hides_it_in_no_list(
    sources: Sources,
) -> None:
    before = sources.present
    victim = next(name for name in before if name.startswith("aws/") and name.endswith("/p5.48xlarge/on_demand"))
    _, region, zone, machine, capacity = victim.split("/")
    sources.feed(f"aws,{region},{zone},{machine},H100,8,{capacity},55.0,\nx,r,z,t,H100,8,spot,3.0,\n")
    assert sources.present[victim][1] == usd(55)
    sources.clock.advance(600)
    sources.feed("x,r,z,t,H100,8,spot,3.0,\n")
    assert sources.present[victim] == before[victim]


def test_a_listed_price_does_not_stand_in_for_one_that_its_cloud_says_is_not_below_on_demand(sources: Sources) -> None:
    catalog = {offer.id: offer for offer in load().offers() if offer.provider == "aws"}
    listed = next(offer for offer in catalog.values() if offer.spot and offer.id in sources.present)
    kind = [
        each for each in sources.present
        if (offer := catalog.get(each)) is not None
        and (offer.region, offer.instance_type) == (listed.region, listed.instance_type)
    ]  # fmt: skip
    on_demand = replace(listed, zone="", capacity_type=CapacityType.ON_DEMAND)
    dollars = sources.present[on_demand.id][1] / 1e9

    def poll(source: str, offer: Offer) -> None:
        found = Finding(listed.region)
        found.price(offer, PricePoint(offer.id, usd(dollars), T0, sources.clock.now_ms(), "AWS"))
        sources.poll(source, found.result())

    poll("aws-on-demand", on_demand)
    poll("aws-spot", listed)
    assert sources.flags == [Flag.SPOT_NOT_BELOW_ON_DEMAND.value]
    assert [name for name in kind if name in sources.present] == [on_demand.id]


def test_a_source_whose_clock_runs_years_ahead_tells_what_holds_now(sources: Sources) -> None:
    sources.aws(20.0, at_ms=T0 + 10 * 365 * 24 * HOUR_MS)
    assert sources.present[spot().id][1] == usd(20)
    sources.clock.advance(600)
    sources.aws(15.0, at_ms=sources.clock.now_ms())
    assert sources.present[spot().id][1] == usd(15)
    with sources.installation.store.read() as tx:
        assert next(at_ms for at_ms, _ in tx.price_changes(spot().id, 0, 2**50)) == T0


def test_what_was_collected_while_our_own_clock_ran_years_ahead_does_not_outlast_that(sources: Sources) -> None:
    offers = [spot(zone) for zone in ZONES]
    sources.feed(ROW.format(0.5))  # not believed
    sources.aws(19.0, offers[1:], at_ms=T0)
    sources.clock.start_ms += 10 * 365 * 24 * HOUR_MS
    sources.aws(20.0, offers[1:], at_ms=sources.clock.now_ms())
    sources.feed(ROW.format(0.51))
    sources.aws(20.0, [])  # nor this
    sources.clock.start_ms -= 10 * 365 * 24 * HOUR_MS
    sources.clock.advance(600)
    sources.aws(21.0, offers[1:], at_ms=T0 + 1)
    sources.feed(ROW.format(0.51))
    assert {each.id: sources.present[each.id][1] for each in offers[1:]} == {each.id: usd(21) for each in offers[1:]}
    assert spot().id not in {each.offer.id for each in collected(sources.installation).reported}
    sources.aws(21.0, [])
    with sources.installation.store.read() as tx:
        (state,) = [each for each in tx.poll_states() if each.source == "aws-spot"]
    assert state.suspect_since_ms is not None
    assert state.suspect_since_ms < sources.clock.now_ms()


def test_a_source_that_names_no_region_is_asked_again(sources: Sources) -> None:
    collecting = sources.collecting("aws-spot")
    (poll,) = collecting._take(_OpenPolls([Task("aws-spot", {}, None)]), Regions("aws-spot", ()))
    assert isinstance(poll.error, FormatError)
    due_ms = collecting.next_ms()
    assert due_ms is not None
    assert due_ms - sources.clock.now_ms() < HOUR_MS
