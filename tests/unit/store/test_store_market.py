"""Offers, prices, polls, availability: what was known when, and nothing stored twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import NotFoundError, UnreadableRowError
from orchestrator.store import AvailabilityPoint, PollRecord, Store, Tx
from providers.offer import Offer
from providers.price import PricePoint
from tests.postgres import only_sqlite

Make = Callable[..., Offer]
Z1, Z2 = "fake/r/z1/t/spot", "fake/r/z2/t/spot"


def point(effective: int, price: int, observed: int | None = None, offer_id: str = Z1) -> PricePoint:
    return PricePoint(offer_id, price, effective, effective if observed is None else observed, "test")


@pytest.fixture
def tx(store: Store, offer: Make) -> Iterator[Tx]:
    with store.write() as opened:
        opened.put_offers("fake", [offer("z1"), offer("z2")])
        yield opened


def test_offers_come_back_as_they_were_by_id(tx: Tx, offer: Make) -> None:
    tx.put_offers("other", [offer("z9", provider="other")])
    assert tx.offers() == [offer("z1"), offer("z2"), offer("z9", provider="other")]


@only_sqlite  # Postgres keeps the types of its columns
@pytest.mark.parametrize("damage", ["gpu_count = 'x'", "capacity_type = 'spo'", "zone = x'00'", "vcpu = 1.5"])
def test_an_offer_that_is_damaged_is_named_among_sound_ones(tx: Tx, damage: str) -> None:
    tx._connection.exec_driver_sql(f"UPDATE offer SET {damage} WHERE id = '{Z2}'")
    with pytest.raises(UnreadableRowError, match="offer"):
        tx.offers()


@only_sqlite
def test_a_price_that_is_damaged_is_named_among_sound_ones(tx: Tx) -> None:
    tx.add_prices([point(1, 5), point(1, 6, offer_id=Z2)])
    tx._connection.exec_driver_sql("UPDATE price_now SET nano_usd_per_hour = 'x' WHERE nano_usd_per_hour = 6")
    with pytest.raises(UnreadableRowError, match="price_point"):
        tx.payable_as_of(10)


def test_an_offer_changes_disappears_and_returns(tx: Tx, offer: Make) -> None:
    tx.put_offers("fake", [offer("z2", vcpu=16)])
    assert tx.offers() == [offer("z2", vcpu=16)]
    assert tx.add_prices([point(10, 5, offer_id=Z1)]) == 1
    tx.put_offers("fake", [offer("z1"), offer("z2")])
    assert tx.offers() == [offer("z1"), offer("z2")]


def test_one_providers_offers_say_nothing_of_anothers(tx: Tx, offer: Make) -> None:
    tx.put_offers("other", [offer("z9", provider="other")])
    tx.put_offers("other", [])
    assert tx.offers() == [offer("z1"), offer("z2")]


def test_only_changes_of_a_price_are_stored(tx: Tx) -> None:
    assert tx.add_prices([point(10, 5), point(20, 5), point(30, 6), point(30, 6), point(40, 5)]) == 3
    assert tx.add_prices([point(40, 5), point(50, 5)]) == 0
    assert tx.price_changes(Z1, 0, 100) == [(10, 5), (30, 6), (40, 5)]


def test_the_same_instant_is_stored_once(tx: Tx) -> None:
    assert tx.add_prices([point(10, 5), point(20, 7)]) == 2
    assert tx.add_prices([point(10, 6), point(20, 8)]) == 0
    assert tx.price_changes(Z1, 0, 100) == [(10, 5), (20, 7)]


def test_history_that_is_learned_late_is_put_into_its_place(tx: Tx) -> None:
    tx.add_prices([point(10, 5), point(50, 5)])
    assert tx.add_prices([point(20, 6, observed=60), point(30, 6, observed=60), point(40, 5, observed=60)]) == 2
    assert tx.price_changes(Z1, 0, 100) == [(10, 5), (20, 6), (40, 5)]


def test_eligible_as_of_an_instant_know_nothing_that_was_learned_later(tx: Tx) -> None:
    late, early = point(20, 9, observed=100), point(10, 5)
    tx.add_prices([late, early, point(15, 7, offer_id=Z2)])
    assert tx.eligible_as_of(9) == []
    assert tx.eligible_as_of(10) == [early]
    assert tx.eligible_as_of(99) == [early, point(15, 7, offer_id=Z2)]
    assert tx.eligible_as_of(100) == [late, point(15, 7, offer_id=Z2)]


def test_a_price_announced_for_the_future_is_not_in_force_yet(tx: Tx) -> None:
    tx.add_prices([point(10, 5), point(50, 9, observed=10)])
    assert tx.eligible_as_of(49) == [point(10, 5)]
    assert tx.eligible_as_of(50) == [point(50, 9, observed=10)]


def test_a_repeated_price_is_kept_when_the_one_before_was_learned_later(tx: Tx) -> None:
    tx.add_prices([point(20, 5, observed=20)])
    assert tx.add_prices([point(10, 5, observed=30)]) == 1
    assert tx.eligible_as_of(25) == [point(20, 5, observed=20)]


def test_price_changes_begin_with_the_one_in_force(tx: Tx) -> None:
    tx.add_prices([point(10, 5), point(20, 6), point(30, 7), point(20, 1, offer_id=Z2)])
    assert tx.price_changes(Z1, 25, 31) == [(20, 6), (30, 7)]
    assert tx.price_changes(Z1, 20, 30) == [(20, 6)]
    assert tx.price_changes(Z1, 5, 15) == [(10, 5)]
    assert tx.price_changes("fake/unknown", 0, 100) == []


def test_a_price_of_an_unknown_offer_is_refused(tx: Tx) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        tx.add_prices([point(10, 5, offer_id="nowhere")])
    with pytest.raises(NotFoundError, match="nowhere"):
        tx.add_availability("nowhere", 10, "refused")


class Undo(Exception):
    """Raised at the end of an example, so that the next one finds nothing."""


CHANGES = st.dictionaries(st.integers(0, 15), st.integers(1, 3), min_size=1, max_size=8)
LOOKS = st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 20)), max_size=5)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, looks=LOOKS)
def test_leaving_out_repetitions_changes_no_answer(
    store: Store, offer: Make, changes: dict[int, int], looks: list[tuple[int, int | None]]
) -> None:
    """Each look learns the price in force, or all changes since an instant; a book that keeps all is the truth."""
    book: dict[int, PricePoint] = {}
    with suppress(Undo), store.write() as tx:
        tx.put_offers("fake", [offer("z1")])
        for now, since in sorted(looks, key=lambda look: look[0]):
            past = [at for at in sorted(changes) if at <= now]
            in_force = max((at for at in past if at <= (now if since is None else since)), default=0)
            seen = [point(at, changes[at], observed=now) for at in past if at >= in_force]
            tx.add_prices(seen)
            for each in seen:
                book.setdefault(each.effective_at_ms, each)
        for at in range(0, 22, 3):
            known = [each for each in book.values() if max(each.effective_at_ms, each.observed_at_ms) <= at]
            truth = [max(known, key=lambda each: each.effective_at_ms).nano_usd_per_hour] if known else []
            assert [each.nano_usd_per_hour for each in tx.eligible_as_of(at)] == truth
        raise Undo


def test_each_poll_is_remembered_also_the_failed_and_the_fruitless(tx: Tx) -> None:
    tx.record_poll("fake", 1, 2, 10, 0, None)
    tx.record_poll("aws", 3, 4, 0, 0, "throttled")
    tx.record_poll("fake", 5, 6, 10, 3, None)
    last, before = tx.polls(limit=2)
    assert last == PollRecord("fake", 5, 6, 10, 3, None, source="fake", region="", flagged=0, hint=None)
    assert before == PollRecord("aws", 3, 4, 0, 0, "throttled", source="aws", region="", flagged=0, hint=None)
    assert [each.started_ms for each in tx.polls("fake")] == [5, 1]


def test_availability_is_listed_for_a_window_in_the_order_of_time(tx: Tx) -> None:
    tx.add_availability(Z2, 20, "refused", None, "no capacity")
    tx.add_availability(Z1, 10, "launched", "run_A")
    tx.add_availability(Z1, 30, "preempted")
    assert tx.availability(10, 20) == [AvailabilityPoint(Z1, 10, "launched"), (Z2, 20, "refused")]


def test_more_offers_than_fit_in_one_question(store: Store, offer: Make) -> None:
    offers = [offer(f"z{number:04}") for number in range(2500)]
    with store.write() as tx:
        tx.put_offers("fake", offers)
        points = [point(10, 5, offer_id=each.id) for each in offers]
        assert tx.add_prices(points) == 2500
        assert tx.add_prices(points) == 0
        assert tx.eligible_as_of(10) == points
