"""Offer ids: read and written in one place."""

from __future__ import annotations

import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.services.offers.ids import checked_offer_id
from providers.catalog import load
from providers.offer import CapacityType, Offer, OfferId, location_of, provider_of, region_of

PART = st.text(st.characters(exclude_characters="/"), max_size=9)
NAMED = PART.filter(bool)
OFFERS = st.builds(
    Offer, NAMED, PART, PART, NAMED, st.none(), st.just(0), st.just(4), st.just(10**9), st.sampled_from(CapacityType)
)


@given(OFFERS)
def test_an_id_is_read_as_it_was_written(offer: Offer) -> None:
    named = OfferId.parse(offer.id)
    assert str(named) == offer.id == checked_offer_id(offer.id)
    assert (named.provider, named.region, named.zone) == location_of(offer.id)
    assert (named.provider, named.region) == (provider_of(offer.id), region_of(offer.id))
    assert (named.instance_type, named.capacity_type, named.spot) == (
        offer.instance_type,
        offer.capacity_type,
        offer.spot,
    )


def test_every_id_of_the_catalogue_is_one() -> None:
    for offer in load().offers():
        assert str(OfferId.parse(offer.id)) == offer.id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "aws",
        "aws/r/z/p5/reserved",
        "aws/r/p5/spot",
        "aws/r/z/p5/spot/x",
        "/r/z/p5/spot",
        "aws/r/z//spot",
        "aws/r/z/p5/Spot",
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (an offer id|a valid CapacityType)"):
        OfferId.parse(text)
    with pytest.raises(UsageError, match="is not an offer id"):
        checked_offer_id(text)


def test_only_one_module_parses_offer_ids() -> None:
    taken_apart = re.compile(r"offer_id[^\n=]*\.(split|r?partition)\(|offer\.id\.(split|r?partition)\(")
    root = pathlib.Path(__file__).resolve().parents[3]
    sources = [path for room in ("orchestrator", "providers", "examples") for path in (root / room).rglob("*.py")]
    found = {path.name for path in sources if taken_apart.search(path.read_text())}
    assert found == {"offer.py"}
