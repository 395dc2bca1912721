"""Old prices: they are less certain, so they count as higher, and beyond a limit they are ignored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import Market
from orchestrator.market.ageing import FRESH_S
from orchestrator.model import Alternative
from orchestrator.policy import Demand, MoveLimits, decide, prospects
from tests.unit.policy.conftest import DecisionCase

DAY = 86_400.0
ANY_AGE = MoveLimits(max_price_age_s=float("inf"))


def chosen(case: DecisionCase, limits: MoveLimits = ANY_AGE) -> dict[str, Alternative]:
    placement = case.decide(Demand(case.job(), total_steps=10**6), limits=limits)
    return {"": replace(placement.alternatives[0])} | {each.offer_id: each for each in placement.alternatives}


def test_a_price_of_631_days_loses_against_a_fresh_one_of_about_the_same_height(case: DecisionCase) -> None:
    old, fresh = case.offer("old", 1.0, age_s=631 * DAY), case.offer("fresh", 1.1)
    found = chosen(case)
    assert found[""].offer_id == fresh
    assert found[old].nano_usd_per_hour < found[fresh].nano_usd_per_hour, "the price is shown as it was reported"
    assert found[old].cost_nano_usd > found[fresh].cost_nano_usd


def test_an_old_price_that_is_far_lower_is_still_worth_a_look(case: DecisionCase) -> None:
    old = case.offer("old", 0.4, age_s=300 * DAY)
    case.offer("fresh", 1.0)
    assert chosen(case)[""].offer_id == old


def test_the_interval_of_an_old_price_is_wider_on_both_sides(case: DecisionCase) -> None:
    old, fresh = case.offer("old", 1.0, age_s=300 * DAY), case.offer("fresh", 1.0)
    found = chosen(case)
    assert found[old].cost_low_nano_usd < found[fresh].cost_low_nano_usd
    assert found[old].cost_high_nano_usd > found[fresh].cost_high_nano_usd
    assert found[old].cost_low_nano_usd < found[old].cost_nano_usd < found[old].cost_high_nano_usd


def test_what_is_past_the_limit_is_left_out_and_counted(case: DecisionCase) -> None:
    old, fresh = case.offer("old", 0.1, age_s=400 * DAY), case.offer("fresh", 5.0)
    placement = case.decide(Demand(case.job(), total_steps=1000), limits=MoveLimits(max_price_age_s=365 * DAY))
    assert placement.offer_id == fresh
    assert {each.offer_id: each.reason for each in placement.alternatives}[old] == "price is 400 days old"
    assert [(each.topic, each.count) for each in placement.rejected] == [("old price", 1)]


def test_nothing_is_compared_with_a_price_past_the_limit_while_another_is_fresh(case: DecisionCase) -> None:
    old = case.offer("old", 0.1, age_s=400 * DAY)
    fresh, spot = case.offer("fresh", 5.0), case.offer("spot", 1.0, spot=True)
    limit, demand = MoveLimits(max_price_age_s=365 * DAY), Demand(case.job(), total_steps=1000)
    placement = case.decide(demand, limits=limit)
    assert (placement.offer_id, placement.baseline and placement.baseline.offer_id) == (spot, fresh)
    case.offers = [each for each in case.offers if each.id != fresh]
    only = case.decide(demand, limits=limit)
    assert (only.offer_id, only.baseline and only.baseline.offer_id) == (spot, old)


def test_a_price_is_old_by_the_pace_of_its_own_source(case: DecisionCase) -> None:
    """An hour is nothing for a list, and long for a feed that is polled each five minutes."""
    offer = case.offer("o", 1.0, age_s=3600)
    slow, quick = (
        Market.as_of(case.now, offers=case.offers, prices=case.prices, fresh_s=fresh)
        for fresh in (None, {offer: 1200.0})
    )
    assert slow.drift is None
    assert quick.drift is not None
    assert quick.drift[0] > 0


@given(st.floats(0, 900), st.floats(0, 900), st.booleans())
def test_law_the_older_of_two_equal_offers_is_never_chosen_and_never_more_certain(one, other, spot):
    case = DecisionCase()
    ids = [case.offer(f"m{place}", 1.0, spot=spot, age_s=age * DAY) for place, age in enumerate((one, other))]
    demand = Demand(case.job(), total_steps=10**6)
    found, _ = prospects(demand, case.market(), case.perf(), limits=ANY_AGE)
    of = {each.offer_id: each for each in found}
    older, newer = (of[ids[0]], of[ids[1]]) if one >= other else (of[ids[1]], of[ids[0]])
    assert older.cost_nano_usd >= newer.cost_nano_usd
    assert older.cost_high_nano_usd >= newer.cost_high_nano_usd
    assert older.cost_low_nano_usd <= newer.cost_low_nano_usd
    if max(one, other) * DAY > FRESH_S and abs(one - other) > 1:
        plan = decide([demand], case.market(), case.perf(), {}, limits=ANY_AGE)
        assert plan.placements[0].offer_id == newer.offer_id


def test_fresh_prices_count_exactly_as_they_are(case: DecisionCase) -> None:
    case.offer("o", 1.0, age_s=0.9 * FRESH_S)
    market = case.market()
    assert market.drift is None
    found, _ = prospects(Demand(case.job(), total_steps=3600), market, case.perf(), limits=MoveLimits())
    assert found[0].nano_usd_per_step == pytest.approx(1e9 / 3600)
