"""When the next poll is: cadence, jitter, patience after errors. Time and chance are turned by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.collect.schedule import FIRST_RETRY_S, JITTER, NEEDS_ACTION_S, Schedule
from providers.collect.sources import source_kind
from providers.errors import AuthError, ProviderError, RegionDisabledError, ThrottledError, UnavailableError

CADENCE_S = 720.0


def waits_s(*errors: ProviderError | None) -> list[float]:
    """Wall seconds until the next turn after each of these endings."""
    schedule = Schedule(random.Random(1))
    schedule.follow("x", ["r"], 0)
    found, now_ms = [], 0
    for error in errors:
        schedule.done("x", "r", now_ms, CADENCE_S, error)
        due_ms = schedule.next_ms(now_ms)
        assert due_ms is not None
        found.append((due_ms - now_ms) / 1000)
        now_ms = due_ms
    return found


def test_new_regions_are_due_at_once_and_the_longest_overdue_first():
    schedule = Schedule(random.Random(1))
    schedule.follow("x", ["b"], 0)
    schedule.follow("x", ["a", "b"], 5)
    assert schedule.due("x", 4) == ["b"]
    assert schedule.due("x", 5) == ["b", "a"]
    assert schedule.due("other", 5) == []


def test_regions_that_are_gone_are_forgotten_and_other_sources_untouched():
    schedule = Schedule(random.Random(1))
    schedule.follow("x", ["a"], 0)
    schedule.follow("y", ["a"], 0)
    schedule.follow("x", [], 0)
    assert (schedule.due("x", 9), schedule.due("y", 9)) == ([], ["a"])


def test_a_clock_that_is_set_back_by_years_makes_no_source_wait_for_years():
    schedule, year_ms = Schedule(random.Random(1)), 365 * 86_400_000
    schedule.done("x", "r", 10 * year_ms, CADENCE_S, None)
    assert schedule.next_ms(10 * year_ms) == schedule.next_ms(10 * year_ms - 1000) != 10 * year_ms
    assert (schedule.due("x", year_ms), schedule.next_ms(year_ms)) == (["r"], year_ms)
    schedule.done("x", "r", year_ms, CADENCE_S, None)
    assert schedule.due("x", year_ms) == []


def test_each_cloud_is_asked_as_often_as_its_prices_move():
    minutes = {name: source_kind(name).cadence_s / 60 for name in ("aws-spot", "gcp-prices", "azure-prices", "feed")}
    assert 10 <= minutes.pop("aws-spot") <= 15
    assert minutes == {"gcp-prices": 60, "azure-prices": 60, "feed": 5}


@given(st.integers(0, 2**32))
def test_law_intervals_vary_within_the_jitter(seed):
    schedule = Schedule(random.Random(seed))
    schedule.done("x", "r", 0, CADENCE_S, None)
    due_ms = schedule.next_ms(0)
    assert due_ms is not None
    assert CADENCE_S * (1 - JITTER) <= due_ms / 1000 <= CADENCE_S * (1 + JITTER)


def test_regions_do_not_fall_into_step():
    schedule = Schedule(random.Random(1))
    for number in range(20):
        schedule.done("x", f"r{number}", 0, CADENCE_S, None)
    assert len({len(schedule.due("x", ms)) for ms in range(600_000, 800_000, 5000)}) > 10


def test_faults_are_retried_soon_then_less_and_less_and_never_slower_than_the_cadence():
    fault = UnavailableError("x")
    found = waits_s(*[fault] * 8, None, fault)
    assert found[0] == pytest.approx(FIRST_RETRY_S, rel=JITTER)
    assert found[2] == pytest.approx(4 * FIRST_RETRY_S, rel=JITTER)
    assert found[7] == pytest.approx(CADENCE_S, rel=JITTER)
    assert found[9] == pytest.approx(FIRST_RETRY_S, rel=JITTER), "a success forgives"


def test_retry_after_is_never_undercut():
    (found,) = waits_s(ThrottledError("x", retry_after_s=5000.0))
    assert found == 5000.0


@pytest.mark.parametrize("error", [AuthError("x"), RegionDisabledError("x")])
def test_what_waiting_does_not_heal_is_asked_rarely(error):
    assert waits_s(error)[0] == pytest.approx(NEEDS_ACTION_S, rel=JITTER)
