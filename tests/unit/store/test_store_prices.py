"""Polls by region, flags, roll-ups, retention; and questions about many, which are answered as those about one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from orchestrator.errors import StoreError
from orchestrator.store import Interval, NewFlag, Store, Tx
from providers.clock import VirtualClock
from providers.collect.facts import Signal
from providers.offer import Offer
from providers.price import PricePoint

Make = Callable[..., Offer]
Z1, Z2 = "fake/r/z1/t/spot", "fake/r/z2/t/spot"
DAY = 86_400_000


def point(effective: int, price: int, observed: int | None = None, offer_id: str = Z1) -> PricePoint:
    return PricePoint(offer_id, price, effective, effective if observed is None else observed, "test")


@pytest.fixture
def tx(store: Store, offer: Make) -> Iterator[Tx]:
    with store.write() as opened:
        opened.put_offers("fake", [offer("z1"), offer("z2")])
        yield opened


def poll(tx: Tx, at: int, region: str = "", error: str | None = None, source: str = "fake") -> None:
    tx.record_poll("fake", at, at + 1, 2, 0, error, source=source, region=region, newest_ms=at - 1)


def flag(price: int = 9, at: int = 10, offer_id: str = Z1, kind: str = "outlier") -> NewFlag:
    return NewFlag(kind, offer_id, "too dear", offer_id, price, at)


def as_of(tx: Tx, at: int) -> dict[str, int]:
    return {each.offer_id: each.nano_usd_per_hour for each in tx.eligible_as_of(at)}


# Polls


def test_a_failed_poll_leaves_what_the_last_good_one_knew(tx: Tx) -> None:
    poll(tx, 10)
    poll(tx, 20, error="no answer")
    poll(tx, 30, error="no answer")
    (state,) = tx.poll_states()
    assert (state.good_started_ms, state.newest_ms, state.failures, state.error) == (10, 9, 2, "no answer")
    poll(tx, 40)
    (state,) = tx.poll_states()
    assert (state.good_started_ms, state.newest_ms, state.failures, state.error) == (40, 39, 0, None)


def test_the_newest_change_of_a_region_never_goes_back(tx: Tx) -> None:
    tx.record_poll("aws", 10, 11, 1, 1, None, source="aws-spot", region="r", newest_ms=9)
    tx.record_poll("aws", 20, 21, 1, 0, None, source="aws-spot", region="r", newest_ms=None)
    tx.record_poll("aws", 30, 31, 1, 0, None, source="aws-spot", region="r", newest_ms=5)
    assert [state.newest_ms for state in tx.poll_states()] == [9]


def test_a_price_is_known_up_to_the_last_good_poll_of_its_own_source_and_region(tx: Tx, offer: Make) -> None:
    tx.put_offers("aws", [offer("z", provider="aws")], source="aws-spot", region="r")
    name = offer("z", provider="aws").id
    assert tx.priced_to_ms(name) is None
    poll(tx, 10, "other", source="aws-spot")
    poll(tx, 10, "r", source="aws-on-demand")
    assert tx.priced_to_ms(name) is None
    poll(tx, 20, "r", source="aws-spot")
    poll(tx, 30, "r", "throttled", source="aws-spot")
    assert tx.priced_to_ms(name) == 20
    assert tx.polled() == [("aws", "r", True, 20)]


def test_a_poll_of_one_region_says_nothing_of_offers_in_another_and_half_a_poll_of_none(tx: Tx, offer: Make) -> None:
    here = offer("z1", provider="aws")
    there = Offer("aws", "r2", "z", "t", "V100", 1, 8, 64, here.capacity_type)
    tx.put_offers("aws", [here, there], source="aws-spot")
    tx.put_offers("aws", [], source="aws-spot", region="r2", whole=False)
    assert {here, there} <= set(tx.offers())
    tx.put_offers("aws", [], source="aws-spot", region="r2")
    assert here in tx.offers()
    assert there not in tx.offers()


# Flags


def test_a_flagged_offer_is_left_out_until_a_report_finds_it_sound(tx: Tx) -> None:
    tx.add_prices([point(5, 3), point(5, 4, offer_id=Z2)])
    tx.put_flags("fake", "", 10, [flag()])
    tx.put_flags("fake", "", 20, [flag()], sound={Z1, Z2})
    assert as_of(tx, 20) == {Z2: 4}
    tx.put_flags("fake", "", 30, [], sound={Z1, Z2})
    assert as_of(tx, 30) == {Z1: 3, Z2: 4}
    assert (as_of(tx, 9), as_of(tx, 10), as_of(tx, 29)) == ({Z1: 3, Z2: 4}, {Z2: 4}, {Z2: 4})
    (row,) = tx.flags_of(Z1)
    assert (row.opened_ms, row.seen_ms, row.cleared_ms, row.nano_usd_per_hour) == (10, 20, 30, 9)


def test_half_a_report_that_is_silent_about_an_offer_clears_nothing(tx: Tx) -> None:
    tx.put_flags("fake", "", 10, [flag()])
    tx.put_flags("fake", "", 20, [], sound={Z2}, whole=False)
    assert [each.subject for each in tx.flags()] == [Z1]


def test_a_flag_of_an_offer_that_is_gone_ends_with_the_first_whole_report_without_it(tx: Tx) -> None:
    tx.put_flags("fake", "", 10, [flag()])
    tx.put_flags("other", "", 20, [])
    tx.put_flags("fake", "elsewhere", 20, [])
    assert [each.subject for each in tx.flags()] == [Z1]
    tx.put_flags("fake", "", 30, [flag(offer_id=Z2)], sound={Z2})
    assert [each.subject for each in tx.flags()] == [Z2]
    assert [each.cleared_ms for each in tx.flags_of(Z1)] == [30]


def test_a_flag_of_an_offer_that_another_source_tells_of_waits_for_that_one(tx: Tx, offer: Make) -> None:
    """On-demand prices flag spot prices once: their next poll says nothing of them."""
    tx.put_flags("fake-on-demand", "", 10, [flag()])
    tx.put_flags("fake-on-demand", "", 20, [])
    assert [each.subject for each in tx.flags()] == [Z1]
    tx.put_offers("fake", [offer("z2")])  # now it is gone
    tx.put_flags("fake-on-demand", "", 30, [])
    assert tx.flags() == []


def test_a_flag_with_another_price_takes_the_place_of_the_one_before(tx: Tx) -> None:
    tx.put_flags("fake", "", 10, [flag(9)])
    tx.put_flags("fake", "", 20, [flag(8)])
    assert [(each.nano_usd_per_hour, each.cleared_ms) for each in tx.flags_of(Z1)] == [(9, 20), (8, None)]
    assert tx.flag_counts() == {("fake", ""): {"outlier": 1}}


def test_a_flag_of_a_table_without_times_stays_one_flag_poll_after_poll(tx: Tx) -> None:
    for at in (10, 20, 30):
        tx.put_flags("fake", "", at, [flag(9, at)])
    (row,) = tx.flags_of(Z1)
    assert (row.opened_ms, row.seen_ms, row.cleared_ms) == (10, 30, None)


def test_a_row_of_no_offer_is_open_until_a_whole_poll_does_not_repeat_it(tx: Tx) -> None:
    tx.put_flags("fake", "", 10, [NewFlag("malformed", "row 7", "no price")])
    tx.put_flags("fake", "", 20, [], whole=False)
    assert len(tx.flags()) == 1
    tx.put_flags("fake", "", 30, [])
    assert tx.flags() == []
    assert len(tx.flags(open=False)) == 1


def test_a_failure_to_list_the_regions_is_over_once_a_region_was_heard(tx: Tx) -> None:
    def shown() -> list[tuple[str, str | None]]:
        return [(state.region, state.error) for state in tx.poll_states()]

    tx.record_poll("gcp", 1, 2, 0, 0, "denied", source="gcp-prices", region="*")
    assert shown() == [("*", "denied")]
    tx.record_poll("gcp", 3, 4, 0, 0, None, source="gcp-prices", region="us")
    assert shown() == [("us", None)]
    tx.record_poll("gcp", 5, 6, 0, 0, "denied", source="gcp-prices", region="*")
    assert shown() == [("*", "denied"), ("us", None)]


def test_recorded_flags_are_stored_once(tx: Tx) -> None:
    past = [(flag(9, 10), "r", 10, 20), (flag(9, 30), "r", 30, None)]
    assert [tx.add_past_flags("import", past), tx.add_past_flags("import", past)] == [2, 0]
    tx.add_prices([point(5, 3)])
    assert [as_of(tx, at) for at in (9, 15, 25, 35)] == [{Z1: 3}, {}, {Z1: 3}, {}]


def test_risks_are_stored_when_they_change(tx: Tx) -> None:
    def risk(low: float, at: int) -> Signal:
        return Signal("interruption_percent", "aws", "r", "", "t", low, low + 5, at, at, "advisor")

    assert tx.add_risks([risk(5, 10), risk(5, 20)]) == 1
    assert tx.add_risks([risk(5, 30), risk(10, 40)]) == 1
    assert tx.risks_as_of(39) == [risk(5, 10)]
    assert tx.risks_as_of(40) == [risk(10, 40)]


# Questions about many at once

SERIES = st.dictionaries(st.integers(0, 60), st.integers(1, 4), max_size=8)


class Undo(Exception):
    """Raised at the end of an example, so that the next one finds nothing."""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    SERIES, SERIES, st.lists(st.tuples(st.sampled_from([Z1, Z2, "no/such"]), st.integers(0, 60), st.integers(0, 30)))
)
def test_many_intervals_are_answered_as_if_the_changes_lay_open(
    store: Store, offer: Make, one: dict[int, int], two: dict[int, int], asked: list[tuple[str, int, int]]
) -> None:
    with suppress(Undo), store.write() as tx:
        tx.put_offers("fake", [offer("z1"), offer("z2")])
        tx.add_prices([point(at, price) for at, price in one.items()])
        tx.add_prices([point(at, price, offer_id=Z2) for at, price in two.items()])
        book = {Z1: _changes(one), Z2: _changes(two), "no/such": []}
        intervals = [Interval(name, start, start + length) for name, start, length in asked]
        truth = []
        for name, start, end in intervals:
            before = [change for change in book[name] if change[0] <= start]
            truth.append(before[-1:] + [change for change in book[name] if start < change[0] < end])
        assert tx.price_changes_of(intervals) == truth
        in_force = [before[0][1] if before and before[0][0] <= each.start_ms else None
                    for before, each in zip(truth, intervals, strict=True)]  # fmt: skip
        assert tx.prices_at([(name, start) for name, start, _ in intervals]) == in_force
        means = [_mean(changes, each) for changes, each in zip(truth, intervals, strict=True)]
        assert tx.mean_prices(intervals) == means
        raise Undo


def _mean(changes: list[tuple[int, int]], asked: Interval) -> int | None:
    """Instant by instant; as the store counts, an interval has one at least."""
    held = [
        [price for at, price in changes if at <= instant][-1:]
        for instant in range(asked.start_ms, max(asked.end_ms, asked.start_ms + 1))
    ]
    known = [price for prices in held for price in prices]
    return math.floor(sum(known) / len(known) + 0.5) if known else None


def _changes(series: dict[int, int]) -> list[tuple[int, int]]:
    changes: list[tuple[int, int]] = []
    for at, price in sorted(series.items()):
        if not changes or changes[-1][1] != price:
            changes.append((at, price))
    return changes


# Roll-ups


def test_a_day_is_rolled_up_once_it_is_over_and_wholly_known(tx: Tx) -> None:
    tx.add_prices([point(0, 4), point(DAY // 2, 8), point(DAY + DAY // 4, 2), point(2 * DAY, 6)])
    poll(tx, DAY - 1)
    assert tx.roll_up(10 * DAY) == 0
    poll(tx, 2 * DAY + 5)
    assert tx.roll_up(DAY - 1) == 0
    tx.roll_up(10 * DAY)
    first, second = tx.price_days(Z1, 0, 9 * DAY)
    assert first == (Z1, 0, 4, 6, 8, 8, 2)
    assert second == (Z1, DAY, 2, (8 + 2 * 3) // 4, 8, 2, 1)
    assert tx.roll_up(10 * DAY) == 0


def test_an_offer_that_is_gone_has_no_further_days(tx: Tx, offer: Make) -> None:
    tx.add_prices([point(0, 4), point(0, 4, offer_id=Z2)])
    poll(tx, 2 * DAY)
    tx.roll_up(10 * DAY)
    tx.put_offers("fake", [offer("z2")])
    poll(tx, 5 * DAY)
    tx.roll_up(10 * DAY)
    assert [len(tx.price_days(name, 0, 9 * DAY)) for name in (Z1, Z2)] == [2, 5]


def test_a_price_learned_late_makes_its_days_again(store: Store, tx: Tx) -> None:
    tx.add_prices([point(0, 4), point(3 * DAY, 5)])
    poll(tx, 4 * DAY)
    tx.roll_up(4 * DAY)
    assert [day.last for day in tx.price_days(Z1, 0, 9 * DAY)] == [4, 4, 4, 5]
    tx.add_prices([point(DAY + 1, 7, observed=5 * DAY)])
    assert [day.last for day in tx.price_days(Z1, 0, 9 * DAY)] == [4]
    tx.roll_up(4 * DAY)
    assert [day.last for day in tx.price_days(Z1, 0, 9 * DAY)] == [4, 7, 7, 5]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(0, 5 * 8), st.integers(1, 5), min_size=1, max_size=8))
def test_a_roll_up_is_what_summing_by_the_hour_gives(store: Store, offer: Make, series: dict[int, int]) -> None:
    """Changes at every third hour: the mean of a day is that of its eight parts."""
    part = DAY // 8
    with suppress(Undo), store.write() as tx:
        tx.put_offers("fake", [offer("z1")])
        tx.add_prices([point(at * part, price) for at, price in series.items()])
        poll(tx, 5 * DAY)
        tx.roll_up(5 * DAY)
        for day in tx.price_days(Z1, 0, 5 * DAY):
            hours = [
                max((at, price) for at, price in series.items() if at * part <= start)[1]
                for start in range(day.start_ms, day.start_ms + DAY, part)
                if min(series) * part <= start
            ]
            assert (day.lowest, day.mean, day.highest) == (min(hours), sum(hours) // len(hours), max(hours))
        raise Undo


# Retention


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.integers(0, 20), st.tuples(st.integers(1, 4), st.integers(0, 15)), max_size=10),
    st.integers(0, 25),
)
def test_what_has_left_changes_no_answer_about_the_time_that_is_kept(
    store: Store, offer: Make, series: dict[int, tuple[int, int]], cut: int
) -> None:
    with suppress(Undo), store.write() as tx:
        tx.put_offers("fake", [offer("z1")])
        for at, (price, late) in series.items():
            tx.add_prices([point(at, price, observed=at + late)])
        before = {at: as_of(tx, at) for at in range(cut, 45)}
        stored = len(tx.price_points(Z1, 0, 99))
        removed, _ = tx.let_go(cut)
        assert {at: as_of(tx, at) for at in range(cut, 45)} == before
        assert len(tx.price_points(Z1, 0, 99)) == stored - removed
        assert tx.kept_from_ms() == cut
        raise Undo


def test_what_jobs_paid_or_are_compared_with_never_leaves(
    tx: Tx, job: Callable[..., object], run: Callable[..., object]
) -> None:
    tx.add_prices([point(10, 1), point(20, 2), point(10, 1, offer_id=Z2), point(20, 2, offer_id=Z2)])
    tx.add_job(job())
    tx.add_run(run(offer_id=Z1))
    assert tx.let_go(30) == (1, 0)
    assert tx.price_changes(Z1, 0, 99) == [(10, 1), (20, 2)]
    assert tx.price_changes(Z2, 0, 99) == [(20, 2)]


def test_only_old_rows_can_leave_and_none_can_change(store: Store, offer: Make, clock: VirtualClock) -> None:
    with store.write() as tx:
        tx.put_offers("fake", [offer("z1")])
        tx.add_prices([point(10, 1), point(20, 2), point(30, 3)])
        poll(tx, 10)
        poll(tx, 30)
        assert tx.let_go(25) == (1, 1)
    for statement in (
        "DELETE FROM price_point WHERE effective_at_ms = 30",
        "DELETE FROM poll",
        "UPDATE price_point SET nano_usd_per_hour = 5",
        "UPDATE poll SET error = NULL",
    ):
        with pytest.raises(StoreError, match="append-only"), store.write() as tx:
            tx._connection.execute(text(statement))
    with store.read() as tx:
        assert tx.price_changes(Z1, 0, 99) == [(20, 2), (30, 3)]
