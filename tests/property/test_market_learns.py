"""A market that learns step by step is the market built at once; it never goes back and never sees ahead."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.market import AvailabilityPoint, HazardPrior, Market
from orchestrator.market.cached_property import cached_property
from orchestrator.market.quotas import Room
from providers.base import Quota
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

NOW = 1_700_000_000_000
DAY = 86_400_000
OFFERS = [
    Offer(provider, region, f"{region}-a", kind, gpu, 1, 4, 10**10, capacity)
    for provider, region in (("aws", "us-1"), ("aws", "eu-1"), ("gcp", "us-1"))
    for kind, gpu in (("small", "T4"), ("large", "H100"))
    for capacity in CapacityType
]
IDS = st.sampled_from([*(offer.id for offer in OFFERS), "aws/us-1/us-1-a/unlisted/spot"])
AT = st.integers(NOW - DAY, NOW + DAY)
PRICES = st.lists(st.builds(PricePoint, IDS, st.integers(1, 10**10), AT, AT, st.just("t")), max_size=20)
KINDS = st.sampled_from(["launched", "refused", "notice", "lost", "released"])
SIGHTINGS = st.lists(st.builds(AvailabilityPoint, IDS, AT, KINDS), max_size=20)
HEARD = st.tuples(st.sampled_from(["aws", "gcp"]), st.sampled_from(["", "us-1"]), st.sampled_from([None, True, False]))
POLLS = st.lists(st.tuples(HEARD, AT), max_size=5)
PRIORS = {("aws", "us-1", "small"): HazardPrior(40.0, "published")}
COLUMNS = (
    "price", "effective_at", "observed_at", "backed_off_at", "backed_off_until", "backed_off_by_loss", "losses",
    "exposure_ms", "hazard",
)  # fmt: skip


AWAY = [
    AvailabilityPoint(offer.id, NOW + at_ms, kind)
    for at_ms, kind in ((-9, "launched"), (-8, "lost"), (DAY // 24, "launched"))
    for offer in OFFERS
]


@given(PRICES, SIGHTINGS, POLLS, st.lists(AT, min_size=1, max_size=4), st.booleans())
@example([], AWAY, [], [NOW, NOW + DAY], True)
def test_learning_step_by_step_is_building_at_once(prices, seen, polls, instants, asked):
    instants = sorted(instants)
    market = Market.as_of(instants[0], offers=OFFERS, prices=prices, availability=seen, polls=polls, priors=PRIORS)
    for before, at in pairwise(instants):
        if asked:  # what an older market has worked out already is taken over, and must not change the answer
            worked_out(market)
        market = market.learn(
            at,
            prices=[point for point in prices if point.observed_at_ms > before],
            availability=[point for point in seen if point.at_ms > before],
            polls=[poll for poll in polls if poll[1] > before],
        )
    built = Market.as_of(instants[-1], offers=OFFERS, prices=prices, availability=seen, polls=polls, priors=PRIORS)
    for name in COLUMNS:
        assert np.array_equal(getattr(market, name), getattr(built, name)), name
    assert np.array_equal(market.confirmed_at(), built.confirmed_at())
    assert np.array_equal(market.price_age_s(), built.price_age_s())
    assert market.digest == built.digest
    cells = market.cells
    assert np.array_equal(cells.hazard[cells.of_row], built.hazard)
    assert np.array_equal(cells.site[cells.of_row], built.listing.site)
    assert np.array_equal(cells.kind[cells.of_row], built.listing.kind)
    assert worked_out(market) == worked_out(built)


def worked_out(market):
    """All that a market works out when it is asked, but for the cells, as something that can be compared."""
    names = [name for name, of in vars(Market).items() if isinstance(of, cached_property)]
    assert len(names) > 8
    found = {name: getattr(market, name) for name in names if name not in ("cells", "_start_tables")}
    found["start"] = market.start_s(market.listing.site, market.listing.kind)
    found["_declared"] = found["_declared"].hexdigest()
    return {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in found.items()}


ROOMS = st.dictionaries(
    st.integers(0, len(OFFERS) - 1),
    st.builds(Room, st.just("aws"), st.builds(Quota, st.just("cores"), st.just("us-1"), st.just(9), st.just(0),
              owned=st.booleans()), st.just(1), st.integers(0, 9)).map(lambda room: (room,)),
    max_size=4,
)  # fmt: skip
DOUBTS = st.dictionaries(st.integers(0, len(OFFERS) - 1), st.just("unlikely"), max_size=3)


@given(PRICES, SIGHTINGS, POLLS, st.booleans(), st.tuples(ROOMS, ROOMS), st.tuples(DOUBTS, DOUBTS))
def test_other_fields_are_all_that_differs(prices, seen, polls, asked, rooms, doubts):
    first, second = (
        Market.as_of(NOW, offers=OFFERS, prices=prices, availability=seen, polls=polls, rooms=of_row,
                     doubts={OFFERS[row].id: why for row, why in by_row.items()})
        for of_row, by_row in zip(rooms, doubts, strict=True)
    )  # fmt: skip
    if asked:
        worked_out(first)
    assert worked_out(first.with_fields(rooms=second.rooms, doubts=second.doubts)) == worked_out(second)


@given(PRICES, st.floats(0, 2 * DAY / 1000), POLLS)
def test_prices_that_are_older_than_a_limit_are_those_whose_age_is(prices, age_s, polls):
    market = Market.as_of(NOW, offers=OFFERS, prices=prices, polls=polls)
    assert np.array_equal(market.older_than(age_s), market.priced & (market.price_age_s() > age_s))


@given(PRICES, PRICES)
def test_learning_leaves_the_older_market_as_it_was(prices, later):
    market = Market.as_of(NOW, offers=OFFERS, prices=prices)
    before, digest = market.price.copy(), market.digest
    market.learn(NOW + DAY, prices=later)
    assert np.array_equal(market.price, before)
    assert market.digest == digest


def test_a_market_does_not_learn_backwards():
    with pytest.raises(ValueError, match="cannot go back"):
        Market.as_of(NOW, offers=OFFERS, prices=()).learn(NOW - 1)
