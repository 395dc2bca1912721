"""Sizes, durations, instants, money and shares: exact, and clear about what they cannot read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.jobfile import units
from orchestrator.jobfile.units import BadValueError

GB, GIB, NANO = 10**9, 2**30, 10**9


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (units.parse_size, "120 GB", 120 * GB),
        (units.parse_size, "64 GiB", 64 * GIB),
        (units.parse_size, "64GiB", 64 * GIB),
        (units.parse_size, "1.5tb", 1_500 * GB),
        (units.parse_size, "512 MB", 512 * 10**6),
        (units.parse_size, "8G", 8 * GB),
        (units.parse_size, "100 B", 100),
        (units.parse_size_range, "40 GB", (40 * GB, None)),
        (units.parse_size_range, "40 GB..", (40 * GB, None)),
        (units.parse_size_range, "..80 GB", (0, 80 * GB)),
        (units.parse_size_range, "40..80 GB", (40 * GB, 80 * GB)),
        (units.parse_size_range, "0.5..1.5 GiB", (GIB // 2, GIB * 3 // 2)),
        (units.parse_size_range, "40 GB .. 80 GiB", (40 * GB, 80 * GIB)),
        (units.parse_duration, "48h", 172_800.0),
        (units.parse_duration, "90 min", 5_400.0),
        (units.parse_duration, "2d 3h", 183_600.0),
        (units.parse_duration, "1h30m", 5_400.0),
        (units.parse_duration, "1 week", 604_800.0),
        (units.parse_duration, "0.5s", 0.5),
        (units.parse_instant, "1970-01-02T00:00:00Z", 86_400_000),
        (units.parse_instant, "1970-01-02 02:00+02:00", 86_400_000),
        (units.parse_money, "250 USD", 250 * NANO),
        (units.parse_money, "$250", 250 * NANO),
        (units.parse_money, "$1,250.50", 1_250_500_000_000),
        (units.parse_money, 250, 250 * NANO),
        (units.parse_money, 0.1, NANO // 10),
        (units.parse_money, "12.5 usd", 12_500_000_000),
        (units.parse_money, "12.50000000000", 12_500_000_000),
        (units.parse_share, "3.5%", 0.035),
        (units.parse_share, 0.035, 0.035),
        (units.parse_share, "100 %", 1.0),
    ],
)
def test_values_are_read_as_people_write_them(read: Callable[[object], object], text: object, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (units.parse_size, "64", "is not a size"),
        (units.parse_size, 64, "is not a size"),
        (units.parse_size, "12 GX", "is not a size"),
        (units.parse_size, "0 GB", "more than 0"),
        (units.parse_size, "-4 GB", "is not a size"),
        (units.parse_size, "9999 PB", "at most 1000 PB"),
        (units.parse_size_range, "..", "is not a range"),
        (units.parse_size_range, "80..40 GB", "is empty"),
        (units.parse_size_range, "40..", "is not a size"),
        (units.parse_duration, 48, "is not a duration"),
        (units.parse_duration, "48", "is not a duration"),
        (units.parse_duration, "", "is not a duration"),
        (units.parse_duration, "3h 2h", "is not a duration"),
        (units.parse_duration, "two days", "is not a duration"),
        (units.parse_duration, "0h", "more than 0"),
        (units.parse_duration, "-1h", "more than 0"),
        (units.parse_duration, "999999 d", "at most 100 years"),
        (units.parse_deadline, "2030-01-31T18:00:00", "has no time zone"),
        (units.parse_deadline, "2030-13-31T18:00:00Z", "is not a timestamp"),
        (units.parse_deadline, "0001-01-01T00:00:00+23:59", "past"),
        (units.parse_money, "250 EUR", "is not an amount"),
        (units.parse_money, True, "is not an amount"),
        (units.parse_money, float("nan"), "is not an amount"),
        (units.parse_money, 0, "more than 0"),
        (units.parse_money, "0.0000000001", '"0.0000000001" is less than the smallest amount, 0.000000001 USD'),
        (units.parse_money, 1e-10, "1e-10 is less than the smallest amount, 0.000000001 USD"),
        (
            units.parse_money,
            "$2.50000000001",
            '2.50000000001" is not a multiple of the smallest amount, 0.000000001 USD',
        ),
        (units.parse_money, "-5 USD", "more than 0"),
        (units.parse_money, 10**400, "at most"),
        (units.parse_share, 3.5, "at most 100%"),
        (units.parse_share, "0%", "more than 0%"),
        (units.parse_share, "much", "is not a percentage"),
        (units.parse_share, True, "is not a percentage"),
    ],
)
def test_other_values_are_refused_with_the_reason(read: Callable[[object], object], text: object, message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        read(text)


@given(days=st.integers(0, 300), hours=st.integers(0, 99), minutes=st.integers(0, 999), seconds=st.integers(1, 999))
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}d {hours}h {minutes} min {seconds}s"
    assert units.parse_duration(text) == days * 86_400 + hours * 3_600 + minutes * 60 + seconds


@given(st.integers(1, 10**18))
def test_money_is_exact_to_the_nano_dollar(nano_usd: int) -> None:
    assert units.parse_money(f"{nano_usd // NANO}.{nano_usd % NANO:09d} USD") == nano_usd


@given(st.integers(1, 10**15))
def test_bytes_are_exact(size: int) -> None:
    assert units.parse_size(f"{size} B") == size


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.binary()))
def test_any_value_is_read_or_refused(value: object) -> None:
    readers = (units.parse_size, units.parse_size_range, units.parse_deadline, units.parse_money, units.parse_share)
    for read in readers:
        try:
            message = str(read(value))
        except BadValueError as error:
            message = str(error)
        assert message.isprintable()


@pytest.mark.parametrize("text", ["tomorrow", "in two days", "31/01/2030", "2030/01/31", "18:00", 48, "", None])
def test_a_deadline_in_no_known_form_is_answered_with_all_forms_and_each_is_accepted(text: object) -> None:
    with pytest.raises(units.BadValueError, match=r"is neither a duration nor a time$") as refused:
        units.parse_deadline(text)
    examples = re.findall(r'"([^"]+)"', refused.value.hint)
    found = [units.parse_deadline(each) for each in examples]
    assert [after_s for after_s, _ in found[:3]] == [172_800.0, 5400.0, 183_600.0]
    assert [at_ms for _, at_ms in found[3:]] == [1_896_112_800_000, 1_896_105_600_000]
    (unit_names,) = re.findall(r"\(units (.*?)\)", refused.value.hint)
    assert all(units.parse_duration(f"2 {unit}") for unit in unit_names.split(", "))


@pytest.mark.parametrize("text", ["2030-01-31", "2030-01-31T18:00:00", "2030-01-31Z"])
def test_a_deadline_without_a_time_or_zone_is_answered_with_forms_that_are_accepted(text: str) -> None:
    with pytest.raises(units.BadValueError) as refused:
        units.parse_deadline(text)
    examples = re.findall(r'"([^"]+)"', refused.value.hint)
    assert [units.parse_deadline(each)[1] for each in examples] == [1_896_112_800_000, 1_896_105_600_000]
