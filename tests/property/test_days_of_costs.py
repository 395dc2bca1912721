"""Laws of the division of entries at midnight, for any period, amount and cuts."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.division import DAY_MS, by_day

instants = st.integers(0, 400 * DAY_MS)
amounts = st.integers(-(10**16), 10**16)


@given(instants, st.integers(0, 90 * DAY_MS), amounts, st.lists(instants, max_size=6))
def test_parts_of_adjacent_periods_and_of_days_add_up_exactly(
    start: int, lasts: int, amount: int, cuts: list[int]
) -> None:
    end, edges = start + lasts, [None, *sorted(set(cuts)), None]
    parts = [part for i in range(len(edges) - 1) for part in by_day(start, end, amount, edges[i], edges[i + 1])]
    assert sum(part.amount_nano_usd for part in parts) == amount
    assert sum(part.time_ms for part in parts) == lasts
    whole = {part.day: part for part in by_day(start, end, amount)}
    assert {part.day for part in parts} == whole.keys()
    for day, of in whole.items():
        assert sum(part.amount_nano_usd for part in parts if part.day == day) == of.amount_nano_usd
        if lasts:
            inside = min(end, (day + 1) * DAY_MS) - max(start, day * DAY_MS)
            assert inside == of.time_ms > 0
            assert abs(of.amount_nano_usd - Fraction(amount * inside, lasts)) < 1


@given(instants, st.integers(0, 90 * DAY_MS), amounts)
def test_an_entry_that_is_taken_back_is_taken_back_on_each_day(start: int, lasts: int, amount: int) -> None:
    there, back = by_day(start, start + lasts, amount), by_day(start, start + lasts, -amount)
    for one, other in zip(there, back, strict=True):
        assert (one.day, one.amount_nano_usd, one.time_ms) == (other.day, -other.amount_nano_usd, other.time_ms)
