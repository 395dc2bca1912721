"""A Market holds what was known at an instant, in columns, and nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from orchestrator.market import AvailabilityPoint, Market
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

T = 1_700_000_000_000


def offer(name: str, *, gpu: str | None = "T4", spot: bool = True, simulated: bool = False) -> Offer:
    kind = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
    return Offer("aws", "us-east-1", "use1-az1", name, gpu, 0 if gpu is None else 2, 8, 10**10, kind, simulated)


A, B = offer("a"), offer("b", gpu=None, spot=False)


def point(of: Offer, price: int, effective: int, observed: int | None = None) -> PricePoint:
    return PricePoint(of.id, price, T + effective, T + (effective if observed is None else observed), "test")


def market(at: int = 0, offers=(A, B), prices=(), availability=(), **rest) -> Market:
    return Market.as_of(T + at, offers=offers, prices=prices, availability=availability, **rest)


def test_rows_are_sorted_by_id_and_give_back_equal_offers():
    snapshot = market(offers=(B, A))
    assert snapshot.ids == (A.id, B.id)
    assert [snapshot.offer(row) for row in range(2)] == [A, B]
    assert (snapshot.row(B.id), snapshot.row("gone")) == (1, None)
    assert (snapshot.gpu(0), snapshot.gpu(1)) == ("T4", None)
    assert snapshot.place(0)[:2] == ("aws", "us-east-1")
    assert len(snapshot) == 2


def test_the_price_in_force_is_the_last_that_took_effect_and_was_observed():
    prices = [point(A, 5, -30), point(A, 7, -10), point(A, 9, -5, observed=+1), point(A, 11, +1, observed=-20)]
    assert market(prices=prices).price.tolist() == [7, -1]
    assert market(at=1, prices=prices).price.tolist() == [11, -1]
    assert market(prices=prices).priced.tolist() == [True, False]


def test_of_two_prices_for_the_same_instant_the_one_observed_last_holds():
    assert market(prices=[point(A, 7, -10, -3), point(A, 5, -10, -9)]).price[0] == 7


def test_a_poll_freshens_its_own_region_and_capacity_type_alone():
    """A dead region's prices age while others of the same provider are heard."""
    there = dataclasses.replace(A, region="eu-west-1", zone="eu-west-1a")
    prices = [point(A, 5, -86_400_000), point(there, 5, -86_400_000)]

    def ages(*heard):
        polls = [(each, T - 60_000) for each in heard]
        return market(offers=(A, there), prices=prices, polls=polls).price_age_s().tolist()

    assert ages() == [86_400, 86_400]  # eu-west-1, us-east-1
    assert ages(("aws", "us-east-1", None)) == [86_400, 60]
    assert ages(("aws", "us-east-1", not A.spot), ("aws", "eu-west-1", A.spot)) == [60, 86_400]
    assert ages(("aws", "", A.spot)) == [60, 60]


def test_a_poll_without_a_change_keeps_a_price_fresh_but_a_later_poll_is_not_known_yet():
    prices = [point(A, 5, -86_400_000)]
    assert market(prices=prices).price_age_s()[0] == 86_400
    assert market(prices=prices, polls=[(("aws", "", None), T - 60_000), (("gcp", "", None), T)]).price_age_s()[0] == 60
    assert market(prices=prices, polls=[(("aws", "", None), T + 1)]).price_age_s()[0] == 86_400


def test_a_refused_offer_is_shut_until_its_back_off_has_passed():
    refused = [AvailabilityPoint(A.id, T, "refused")]
    assert market(availability=refused).backed_off.tolist() == [True, False]
    assert market(at=15 * 60_000, availability=refused).backed_off.tolist() == [False, False]


def test_the_hazard_says_where_it_comes_from():
    assert market().hazard_provenance(0) == "prior: one loss in 8 h"
    assert market().hazard_provenance(1) == "on-demand: no preemption"
    history = [AvailabilityPoint(A.id, T - 7_200_000, "launched"), AvailabilityPoint(A.id, T, "lost")]
    assert market(availability=history).hazard_provenance(0) == "1 loss in 2.0 h, with a prior of one in 8 h"


def test_start_up_times_are_by_provider_with_a_cold_start_as_default():
    assert market(startup_s={"aws": 12}).startup_s.tolist() == [12, 12]
    assert market().startup_s.tolist() == [360, 360]


def test_equal_knowledge_has_an_equal_digest_at_another_instant():
    prices = [point(A, 5, -10), point(B, 6, -10)]
    digest = market(prices=prices).digest
    assert market(at=1000, prices=prices[::-1], offers=(B, A)).digest == digest
    assert market(prices=[*prices, point(A, 7, -5)]).digest != digest
    assert market(prices=prices, offers=(A,)).digest != digest
    assert market(prices=prices, availability=[AvailabilityPoint(A.id, T, "refused")]).digest != digest
    assert market(prices=prices, offers=(A, dataclasses.replace(B, gpu_count=4))).digest != digest


def test_a_market_cannot_be_constructed_directly_or_changed():
    with pytest.raises(TypeError, match=r"Market\.as_of"):
        dataclasses.replace(market(), seal=None)
    with pytest.raises(ValueError, match="read-only"):
        market().price[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        market().at = 0  # type: ignore[misc]


def test_an_empty_market_is_a_market():
    empty = market(offers=())
    assert len(empty) == 0
    assert empty.price.dtype == np.int64
    assert empty.digest
