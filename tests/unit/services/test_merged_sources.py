"""What feeds, collectors and the catalogue say of the same clouds, merged offer by offer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.installation import Installation
from orchestrator.prices.collected import collected
from orchestrator.prices.merge import Kind, ReportedPrice, merged
from orchestrator.services.catalog.market import catalogue_market
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.views import OfferRow
from providers.catalog import load
from providers.clock import VirtualClock
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

NOW = 1_790_000_000_000  # some days after the newest fact of the catalogue
A100 = next(each for each in load().offers() if each.id == "verda/FIN-01//1A100.22V/spot")
ONLY_HERE = Offer("verda", "FIN-01", "", "8H999", "H100", 8, 0, 0, CapacityType.SPOT)


@pytest.fixture
def dated(installation: Installation) -> Installation:
    return replace(installation, clock=VirtualClock(NOW))


def feed(installation: Installation, *named: Offer, at_ms: int = NOW - 60_000, source: str = "feed:verda") -> None:
    """One whole poll of a feed that names these."""
    with installation.store.write() as tx:
        tx.put_offers("feed", list(named), source=source)
        tx.add_prices(PricePoint(each.id, usd("9.12"), at_ms, at_ms, "our table") for each in named)
        tx.record_poll("feed", at_ms, at_ms, len(named), len(named), None, source=source, region="all")


def of_verda(installation: Installation) -> list[OfferRow]:
    return list(
        listing.offers(installation.config, lambda: installation, OfferQuery(clouds=("verda",)), now_ms=NOW).offers
    )


def test_one_row_of_a_feed_hides_no_other_offer_of_its_region(dated: Installation) -> None:
    before = {row.id for row in of_verda(dated)}
    feed(dated, ONLY_HERE)
    after = {row.id: row.source for row in of_verda(dated)}
    assert set(after) == before | {ONLY_HERE.id}
    assert after[ONLY_HERE.id] == "our table"
    assert Counter(source.startswith("catalogue") for source in after.values()) == {True: len(before), False: 1}


def test_a_fresh_price_stands_in_place_of_the_catalogues_of_the_same_offer_and_no_other(dated: Installation) -> None:
    before = {row.id: row for row in of_verda(dated)}
    feed(dated, A100)
    after = {row.id: row for row in of_verda(dated)}
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {A100.id}
    assert (after[A100.id].nano_usd_per_hour, after[A100.id].source, after[A100.id].age_s) == (
        usd("9.12"),
        "our table",
        60,
    )


def test_a_feed_that_was_last_heard_before_the_catalogue_gives_way_to_it(dated: Installation) -> None:
    before = of_verda(dated)
    feed(dated, A100, at_ms=1_600_000_000_000)
    assert of_verda(dated) == before


def test_an_offer_that_its_source_no_longer_names_does_not_come_back_from_an_older_list(dated: Installation) -> None:
    before = {row.id for row in of_verda(dated)}
    feed(dated, A100, at_ms=NOW - 120_000)
    feed(dated, at_ms=NOW - 60_000)
    assert before - {row.id for row in of_verda(dated)} == {A100.id}


def test_the_catalogues_offers_in_a_region_that_answers_stay_as_old_as_they_are(dated: Installation) -> None:
    feed(dated, A100)
    market = catalogue_market(NOW, without=dated.providers, heard=collected(dated))
    dates = {price.offer_id: price.observed_at_ms for price in load().prices()}
    ages = {market.ids[row]: float(market.price_age_s()[row]) for row in range(len(market))}
    assert ages[A100.id] == 60
    others = {name: (NOW - dates[name]) / 1000 for name in ages if name.startswith("verda/FIN-01/") and name != A100.id}
    assert {name: ages[name] for name in others} == others != {}


KINDS = st.tuples(st.sampled_from("pq"), st.sampled_from("rs"), st.sampled_from("tu"), st.sampled_from(CapacityType))
REPORTED = st.builds(
    lambda kind, zone, at, price: _reported(kind, zone, at, price),
    KINDS,
    st.sampled_from(["", "a", "b"]),
    st.integers(0, 9),
    st.integers(1, 9),
)


def _reported(kind: tuple[str, str, str, CapacityType], zone: str, at: int, price: int) -> ReportedPrice:
    provider, region, machine, capacity = kind
    offer = Offer(provider, region, zone, machine, None, 0, 0, 0, capacity)
    return ReportedPrice(offer, PricePoint(offer.id, price, at, at, "s"), at, "s")


@given(st.lists(REPORTED), st.lists(REPORTED), st.dictionaries(KINDS.map(lambda kind: Kind(*kind)), st.integers(0, 9)))
def test_law_each_kind_comes_from_one_side_and_from_the_fresher_one(fresh, old, gone):
    kept = merged(fresh, old, gone)
    for kind in {Kind.of(each.offer) for each in (*fresh, *old)}:
        of_kind = [each for each in kept if Kind.of(each.offer) == kind]
        newest = max((each.known_ms for each in (*fresh, *old) if Kind.of(each.offer) == kind), default=-1)
        if newest > gone.get(kind, -1):
            assert newest in {each.known_ms for each in of_kind}
    reported_kinds = {Kind.of(each.offer) for each in fresh}
    alone = [each for each in old if Kind.of(each.offer) not in reported_kinds and Kind.of(each.offer) not in gone]
    assert all(each in kept for each in alone), "what nobody else speaks of stays"
