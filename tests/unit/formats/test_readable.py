"""Times for people, also those that no calendar has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.cli.render.text import instant, number, scaled, span
from orchestrator.formats import readable
from orchestrator.formats.readable import LAST_MS, iso
from orchestrator.reports.html import render
from orchestrator.reports.html.figures import ago, counted, duration


def test_times_are_utc_to_the_millisecond() -> None:
    assert iso(1_763_719_406_882) == "2025-11-21T10:03:26.882Z"
    assert instant(1_763_719_406_882) == "2025-11-21 10:03:26 UTC"


def test_ages_of_years_are_in_years_on_pages_and_on_a_terminal() -> None:
    day_s = 86_400.0
    assert ago(2524.7 * day_s) == "6.9 years ago"
    assert duration(729 * day_s) == span(729 * day_s) == "729 days"
    assert duration(800 * day_s) == span(800 * day_s) == "2.2 years"


def test_durations_are_in_a_unit_that_leaves_two_digits() -> None:
    texts = {75: "75 s", 720: "12 min", 11_520: "3.2 h", 3 * 86_400: "3 days", 47_704 * 86_400: "130.6 years"}
    assert {seconds: readable.span(seconds) for seconds in texts} == texts


@pytest.mark.parametrize("seconds", [0.0, 59.0, 75.0, 3660.0, 5399.0, 7000.0, 200_000.0, 1e8, 1e11])
def test_a_duration_is_the_same_in_tables_in_sentences_and_on_pages(seconds: float) -> None:
    assert span(seconds) == readable.span(seconds) == duration(seconds)


def test_a_long_duration_has_separators() -> None:
    assert readable.span(1e6 * readable.YEAR_S) == "1,000,000.0 years"


def test_amounts_have_a_prefix_that_suits_them() -> None:
    shown = {
        0: "0 B",
        999.4: "999 B",
        999.6: "1 kB",
        10_830: "10.8 kB",
        26e6: "26 MB",
        1.02e9: "1.02 GB",
        3e18: "3,000 PB",
    }
    assert {value: scaled(value, "B") for value in shown} == shown


def test_large_numbers_are_written_out() -> None:
    shown = {
        0.0001234: "0.0001234",
        43.871: "43.87",
        9999.4: "9999",
        9999.6: "10,000",
        15_678.0: "15,680",
        -2e5: "-200,000",
    }
    assert {value: number(value) for value in shown} == shown


def test_a_time_after_the_last_year_of_the_calendar_is_called_that() -> None:
    """A job of a billion steps at a step in a quarter of an hour ends in the year 34421."""
    assert iso(LAST_MS) == iso(2**62) == "9999-12-31T23:59:59.999Z"
    assert instant(2**62) == "after the year 9999"
    assert instant(LAST_MS).startswith("9999")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 jobs"), (1, "1 job"), (1.001, "1 job"), (2, "2 jobs"), (0.5, "0.5 jobs"), (1200, "1,200 jobs")],
)
def test_a_count_has_the_noun_in_the_right_number(count: float, shown: str) -> None:
    assert counted(count, "job") == shown
    assert counted(1, "entry", "entries") == "1 entry"


def test_no_page_writes_a_plural_after_a_number_itself() -> None:
    """It would say "1 jobs"."""
    folder = Path(render.__file__).parent / "templates"
    verbs = {"less", "was", "is", "has"}
    found = [
        (path.name, noun)
        for path in sorted(folder.glob("*.html"))
        for noun in re.findall(r"\}\} (?:[a-z]+ )?([a-z]+s)\b(?! \()", path.read_text(encoding="utf-8"))
        if noun not in verbs
    ]
    assert found == []
