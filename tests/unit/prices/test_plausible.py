"""A first price has an outside anchor: the catalogue, its GPU elsewhere, a second source, a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import load_config
from orchestrator.engine.machines.collect import collector
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.installation import Installation
from orchestrator.prices.collected import collected
from orchestrator.services.prices.accept import accept
from orchestrator.store import Store
from providers.catalog import load
from providers.clock import VirtualClock
from providers.collect.anchors import Anchors
from providers.collect.facts import Flag
from providers.collect.judge import Judge
from providers.collect.runner import SourceSpec
from providers.fake import FakeCloud, FakeProvider
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.unit.services.recorded_history import ME

T0 = 1_790_000_000_000
HEAD = "provider,region,instance_type,gpu,gpu_count,capacity_type,price_per_hour\n"
OFFER = "newcloud/eu//h8/on_demand"


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    clock = VirtualClock(T0)
    config = load_config({"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}, environ={}, cwd=tmp_path)
    config.state_dir.mkdir()
    cloud = FakeProvider(clock, cloud=FakeCloud(clock))
    opened = Installation(config, clock, Store.open(config.store_url, clock), {"fake": cloud})
    yield opened
    opened.close()


class Tables:
    """Feeds of one machine with eight H100, each polled by a child process of another collector."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self.installation, self.folder = installation, folder

    def poll(self, name: str, dollars: float, gpus: int = 8) -> tuple[list[int], list[str]]:
        """(what may be chosen, what is flagged) after it."""
        import random

        table = self.folder / f"{name}.csv"
        table.write_text(f"{HEAD}newcloud,eu,h8,H100,{gpus},on_demand,{dollars}\n")
        specs = [SourceSpec(f"feed:{name}", {"at": str(table)})]
        collector(self.installation.store, self.installation.clock, specs, random.Random(1)).collect()
        return self.seen()

    def seen(self) -> tuple[list[int], list[str]]:
        with self.installation.store.read() as tx:
            eligible = [point.nano_usd_per_hour for point in tx.eligible_as_of(2**50)]
            return eligible, [row.flag for row in tx.flags()]


@pytest.fixture
def tables(installation: Installation, tmp_path: Path) -> Tables:
    return Tables(installation, tmp_path)


def test_eight_h100_for_a_dollar_are_kept_but_not_eligible_however_often_one_source_reports_it(tables: Tables) -> None:
    assert tables.poll("a", 0.98) == ([], ["implausible"])
    assert tables.poll("a", 0.98) == ([], ["implausible"])
    assert tables.poll("a", 0.97) == ([], ["implausible"])
    with tables.installation.store.read() as tx:
        assert [point.nano_usd_per_hour for point in tx.payable_as_of(2**50)] == [usd("0.97")], "who is there pays it"
        assert "H100 on demand, but elsewhere it costs $" in tx.flags()[0].detail
    assert collected(tables.installation).reported == ()


def test_a_plausible_price_after_it_counts_at_once(tables: Tables) -> None:
    tables.poll("a", 0.98)
    assert tables.poll("a", 19.0) == ([usd(19)], [])
    assert tables.poll("a", 0.99) == ([], ["outlier"])


def test_two_sources_that_agree_are_accepted(tables: Tables) -> None:
    assert tables.poll("a", 0.98) == ([], ["implausible"])
    assert tables.poll("b", 1.10) == ([usd("1.1")], [])
    assert tables.poll("b", 1.10) == ([usd("1.1")], [])


def test_a_person_lifts_it_with_an_event_and_it_stays_lifted(tables: Tables) -> None:
    tables.poll("a", 0.98)
    done = accept(tables.installation, OFFER, caller=ME)
    assert (done.nano_usd_per_hour, done.flag, done.source) == (usd("0.98"), "implausible", "feed:a")
    assert tables.seen() == ([usd("0.98")], [])
    assert tables.poll("a", 0.98) == ([usd("0.98")], [])
    with tables.installation.store.read() as tx:
        (event,) = tx.events(kinds=("price.accepted",))
    assert (event.actor.partition(":")[0], event.data["offer_id"]) == ("user", OFFER)


def test_a_leap_that_a_person_accepts_is_payable_from_when_it_took_effect(tables: Tables) -> None:
    tables.poll("a", 19.0)
    assert tables.poll("a", 700.0) == ([], ["outlier"])
    with tables.installation.store.read() as tx:
        (flag,) = tx.flags()
    accept(tables.installation, OFFER, caller=ME)
    with tables.installation.store.read() as tx:
        assert tx.price_changes(OFFER, 0, 2**50)[-1] == (flag.effective_at_ms, usd(700))
        assert tx.flags() == []


def test_a_leap_to_what_is_implausible_is_not_eligible_after_its_second_report(tables: Tables) -> None:
    """A changed unit is repeated in every poll: a second report of the same source proves nothing."""
    assert tables.poll("a", 19.0) == ([usd(19)], [])
    assert tables.poll("a", 0.019) == ([], ["outlier"])
    assert tables.poll("a", 0.019) == ([], ["implausible"])
    assert tables.poll("a", 19.0) == ([usd(19)], [])


def test_a_machine_reported_with_ten_times_the_gpus_is_checked_again(tables: Tables) -> None:
    tables.poll("a", 19.0)
    assert tables.poll("a", 19.0, gpus=80) == ([], ["implausible"])
    assert tables.poll("a", 19.0) == ([usd(19)], [])


def test_a_price_that_needs_no_confirmation_or_cannot_be_confirmed_is_refused_with_the_remedy(tables: Tables) -> None:
    tables.poll("a", 19.0)
    with pytest.raises(UsageError, match="is not flagged"):
        accept(tables.installation, OFFER, caller=ME)
    with pytest.raises(NotFoundError, match="unknown offer") as caught:
        accept(tables.installation, OFFER.replace("h8", "h9"), caller=ME)
    assert OFFER in caught.value.hint


def test_no_price_of_the_catalogue_is_implausible_to_itself() -> None:
    anchors, catalog = Anchors(), load()
    found = [
        (offer.id, why)
        for offer, price in zip(catalog.offers(), catalog.prices(), strict=True)
        if (why := anchors.objection(offer, price.nano_usd_per_hour))
    ]
    assert found == []


LISTED = Offer("aws", "r", "", "p5", "H100", 8, 0, 0, CapacityType.ON_DEMAND)


@given(st.integers(1, 10**6), st.floats(0.001, 1000))
def test_law_a_price_is_plausible_by_its_ratio_to_what_lists_say_and_not_by_its_height(dollars, ratio):
    listed = [(LISTED, PricePoint(LISTED.id, usd(dollars), 0, 0, "list"))]
    judge = Judge(anchors=Anchors(lambda: listed))
    point = PricePoint(LISTED.id, max(int(usd(dollars) * ratio), 1), 1, 1, "s")
    flags = [row.flag for row in judge.judge([LISTED], [point], "s").flagged]
    if 0.34 < ratio < 3.99:
        assert flags == []
    elif ratio < 0.24 or ratio > 4.01:
        assert flags == [Flag.IMPLAUSIBLE]
