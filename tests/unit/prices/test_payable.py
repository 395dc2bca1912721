"""Three facts of a price: what was said, what a machine there costs, and whether it is fit to be chosen."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import load_config
from orchestrator.engine.machines.collect import collect_from, collector
from orchestrator.installation import Installation
from orchestrator.prices.sink import StoreSink
from orchestrator.services.prices import prices
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.collect.facts import FlaggedFinding
from providers.collect.judge import Judge
from providers.collect.runner import PollOutcome, SourceSpec
from providers.fake import FakeCloud, FakeProvider
from providers.money import MS_PER_HOUR, cost_nano_usd, usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

T0 = 1_700_000_000_000
HOUR = MS_PER_HOUR
SPOT, ON_DEMAND = (
    Offer("fake", "alpha", "alpha-1", "v100.1", "V100", 1, 8, 2**36, kind, simulated=True)
    for kind in (CapacityType.SPOT, CapacityType.ON_DEMAND)
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/tradewind.db", VirtualClock(T0))
    yield opened
    opened.close()


class Collecting:
    """Polls of one source as they come, one an hour, judged and stored as the collector does it."""

    def __init__(self, store: Store) -> None:
        self.store, self.judge, self.sink = store, Judge(), StoreSink(store)
        self.hour = 0

    def poll(self, **dollars: float) -> list[FlaggedFinding]:
        offers = [each for each in (SPOT, ON_DEMAND) if each.capacity_type.value in dollars]
        at = T0 + self.hour * HOUR
        points = [PricePoint(each.id, usd(dollars[each.capacity_type.value]), at, at, "s") for each in offers]
        judged = self.judge.judge(offers, points)
        self.sink.offers("fake-prices", "alpha", offers)
        self.sink.prices("fake-prices", "alpha", judged.payable)
        self.sink.flagged("fake-prices", "alpha", judged.flagged)
        self.sink.ended(PollOutcome("fake-prices", "alpha", at, at, newest_ms=at))
        self.hour += 1
        return judged.flagged

    def cost(self, hours: int) -> int:
        end = T0 + hours * HOUR
        with self.store.read() as tx:
            return cost_nano_usd(tx.price_changes(SPOT.id, T0, end), T0, end)


def test_the_books_follow_a_spot_price_that_climbs_above_on_demand(store: Store) -> None:
    """The bill was $70 and the books said $24: the price that nobody should choose was not booked either."""
    collecting = Collecting(store)
    for dollars in (3.0, 3.0, 12.0, 26.0, 26.0):
        collecting.poll(spot=dollars, on_demand=10.0)
    assert collecting.cost(5) == usd(70)
    with store.read() as tx:
        payable, eligible = tx.payable_as_of(T0 + 5 * HOUR), tx.eligible_as_of(T0 + 5 * HOUR)
        assert {point.offer_id: point.nano_usd_per_hour for point in payable}[SPOT.id] == usd(26)
        assert [point.offer_id for point in eligible] == [ON_DEMAND.id]
        assert "260.0% of on-demand" in tx.flagged_as_of(T0 + 5 * HOUR)[SPOT.id]
        assert SPOT.id in {point.offer_id for point in tx.eligible_as_of(T0 + HOUR)}, "as it was known then"
        assert tx.priced_to_ms(SPOT.id) == T0 + 4 * HOUR


def test_nothing_is_booked_on_a_leap_before_a_second_report_and_all_of_it_after(store: Store) -> None:
    collecting = Collecting(store)
    collecting.poll(spot=0.5, on_demand=10.0)
    collecting.poll(spot=5.5, on_demand=10.0)
    with store.read() as tx:
        assert tx.priced_to_ms(SPOT.id) == T0 + HOUR, "the books wait at the leap"
        assert tx.priced_to_ms(ON_DEMAND.id) == T0 + HOUR
        assert SPOT.id not in {point.offer_id for point in tx.eligible_as_of(T0 + 9 * HOUR)}
    collecting.poll(spot=5.6, on_demand=10.0)
    with store.read() as tx:
        assert tx.priced_to_ms(SPOT.id) == T0 + 2 * HOUR
        assert SPOT.id in {point.offer_id for point in tx.eligible_as_of(T0 + 9 * HOUR)}
    assert collecting.cost(3) == usd("0.5") + usd("5.5") + usd("5.6"), "from when it took effect"


def test_a_leap_that_is_taken_back_was_never_payable(store: Store) -> None:
    collecting = Collecting(store)
    for dollars in (0.5, 500.0, 0.6):
        collecting.poll(spot=dollars, on_demand=10.0)
    assert collecting.cost(3) == usd("0.5") * 2 + usd("0.6")
    with store.read() as tx:
        (row,) = tx.flags_of(SPOT.id)
        assert (row.flag, row.nano_usd_per_hour, row.cleared_ms) == ("outlier", usd(500), T0 + 2 * HOUR), "and kept"


def test_a_leap_waits_for_its_second_report_across_control_planes(store: Store, tmp_path: Path) -> None:
    table = tmp_path / "verda.csv"
    head = "provider,region,instance_type,gpu,gpu_count,capacity_type,price_per_hour\n"
    clock, seen = VirtualClock(T0), []
    for dollars in (1, 15, 15):
        table.write_text(f"{head}verda,fin,h1,H100,1,on_demand,{dollars}\n")
        collector(store, clock, [SourceSpec("feed:verda", {"at": str(table)})], random.Random(1)).collect()
        with store.read() as tx:
            seen.append([point.nano_usd_per_hour for point in tx.eligible_as_of(2**50)])
    assert seen == [[usd(1)], [], [usd(15)]]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    clock = VirtualClock(T0)
    config = load_config({"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}, environ={}, cwd=tmp_path)
    config.state_dir.mkdir()
    catalog = ((SPOT, usd(3)), (ON_DEMAND, usd(10)))
    cloud = FakeCloud(clock, catalog=catalog)
    opened = Installation(
        config, clock, Store.open(config.store_url, clock), {"fake": FakeProvider(clock, cloud=cloud)}
    )
    yield opened
    opened.close()


def test_prices_of_an_enabled_provider_pass_the_same_judge(installation: Installation) -> None:
    provider = installation.providers["fake"]
    assert isinstance(provider, FakeProvider)

    def polled(dollars: float | None = None) -> tuple[int, list[str]]:
        if dollars is not None:
            provider.cloud.set_price(SPOT.id, usd(dollars))
        installation.clock.sleep(3600)
        collect_from(installation, None, provider)
        now = installation.clock.now_ms()
        with installation.store.read() as tx:
            payable = {point.offer_id: point.nano_usd_per_hour for point in tx.payable_as_of(now)}
            return payable[SPOT.id], [row.flag for row in tx.flags()]

    assert polled(3.0) == (usd(3), [])
    assert polled(12.0) == (usd(12), ["spot_not_below_on_demand"])
    assert polled() == (usd(12), ["spot_not_below_on_demand"])
    assert polled(0.9) == (usd(12), ["outlier"])
    assert polled() == (usd("0.9"), []), "reported twice"


def test_a_feed_says_nothing_of_a_provider_that_is_enabled(installation: Installation, tmp_path: Path) -> None:
    """It would set the books, or knock its offers out."""
    provider = installation.providers["fake"]
    collect_from(installation, None, provider)
    with installation.store.read() as tx:
        before = tx.offers(), tx.payable_as_of(2**50), tx.eligible_as_of(2**50)
    head = "provider,region,zone,instance_type,gpu,gpu_count,capacity_type,price_per_hour\n"
    rows = ["fake,alpha,alpha-1,v100.1,V100,1,spot,0.5", "fake,alpha,alpha-1,v100.1,V101,1,on_demand,9"]
    (tmp_path / "f.csv").write_text(head + "\n".join([*rows, "fake,alpha,,new,V100,1,on_demand,1"]) + "\n")
    done = prices.collect(installation, feeds=[("f", str(tmp_path / "f.csv"))])
    assert [(poll.error, poll.offers) for poll in done.polls] == [(None, 2)]
    with installation.store.read() as tx:
        assert (tx.offers(), tx.payable_as_of(2**50), tx.eligible_as_of(2**50)) == before
        assert {row.flag for row in tx.flags()} == {"not_its_own"}


PRICES = st.lists(st.tuples(st.floats(0.01, 1000), st.floats(0.01, 1000)), min_size=1, max_size=12)


@given(PRICES)
def test_law_of_each_report_its_price_is_payable_or_flagged_and_only_an_outlier_is_not_payable(hours):
    judge = Judge()
    for hour, (spot, on_demand) in enumerate(hours):
        at = T0 + hour * HOUR
        said = [PricePoint(SPOT.id, usd(spot), at, at, "s"), PricePoint(ON_DEMAND.id, usd(on_demand), at, at, "s")]
        judged = judge.judge([SPOT, ON_DEMAND], said)
        unpaid = {row.subject for row in judged.flagged if row.flag == "outlier"}
        assert {point.offer_id for point in judged.payable if point in said} == {SPOT.id, ON_DEMAND.id} - unpaid
