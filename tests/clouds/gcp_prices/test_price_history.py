"""What market.md section 4 says of GCP: earlier prices, preemptions, and prices that are dated ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import (
    PermissionDeniedError,
)
from providers.gcp.prices.history import CapacityHistory
from providers.gcp.prices.list_history import months
from tests.clouds.conftest import flags
from tests.clouds.gcp import GOOGLES
from tests.clouds.gcp_prices.conftest import A2, A2_PRICES, HERE, NOW, ZONE, cloud, millis, prices, repriced


def test_a_version_that_is_dated_ahead_is_not_the_price_yet(server, poll, list_history):
    changes = [("2026-09-01T00:00:00Z", 2.9), ("2026-10-01T00:00:00Z", 9.9)]
    server.serve(cloud(A2, skus=repriced(*changes)))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])
    reported = {point.effective_at_ms for point in list_history("2026-09-21T00:00:00Z").points}
    assert max(reported) == millis("2026-09-01T00:00:00Z")


def test_history_of_prices_and_preemptions_comes_from_the_advice_service(server, connections, poll):
    interval = {"startTime": "2026-08-01T00:00:00Z", "endTime": "2026-08-02T00:00:00Z"}
    later = {"startTime": "2026-08-02T00:00:00Z", "endTime": "2026-08-03T00:00:00Z"}
    body = {
        "priceHistory": [
            {"interval": later, "listPrice": {"currencyCode": "USD", "units": "1", "nanos": 500_000_000}},
            {"interval": interval, "listPrice": {"currencyCode": "USD", "units": "1", "nanos": 250_000_000}},
        ],
        "preemptionHistory": [{"interval": interval, "preemptionRate": 0.125}],
    }
    server.serve(cloud(A2, history={f"{ZONE}/a2-highgpu-1g": body}))
    result = CapacityHistory(connections=connections).poll(HERE, NOW, None)
    assert [point.nano_usd_per_hour / 1e9 for point in result.points] == [1.25, 1.5]
    assert [(signal.kind, signal.low) for signal in result.signals] == [("preemption_fraction", 0.125)]


def test_a_record_that_does_not_say_when_costs_only_itself(server, connections):
    interval = {"startTime": "2026-08-01T00:00:00Z", "endTime": "2026-08-02T00:00:00Z"}
    price = {"currencyCode": "USD", "units": "1"}
    body = {
        "priceHistory": [
            {"interval": {"startTime": "soon"}, "listPrice": price},
            {"interval": interval, "listPrice": price},
        ],
        "preemptionHistory": [{"interval": {"startTime": ""}, "preemptionRate": 0.5}],
    }
    server.serve(cloud(A2, history={f"{ZONE}/a2-highgpu-1g": body}))
    result = CapacityHistory(connections=connections).poll(HERE, NOW, None)
    assert (result.error, len(result.points), result.signals) == (None, 1, ())
    assert [flag for flag, _ in flags(result)] == ["malformed", "malformed"]


def test_earlier_list_prices_are_asked_for_month_by_month_of_googles_time_zone(server, list_history):
    changes = [("2026-08-01T00:00:00Z", 2.0), ("2026-10-20T00:00:00Z", 3.0), ("2026-11-18T00:00:00Z", 4.0)]
    server.serve(cloud(A2, skus=repriced(*changes)))
    result = list_history("2026-11-20T00:00:00Z")
    assert result.error is None
    months = [(each.query["startTime"], each.query["endTime"]) for each in server.asked("skus")]
    assert months == [
        ("2026-08-01T07:00:00Z", "2026-09-01T07:00:00Z"),
        ("2026-09-01T07:00:00Z", "2026-10-01T07:00:00Z"),
        ("2026-10-01T07:00:00Z", "2026-11-01T07:00:00Z"),
        ("2026-11-01T07:00:00Z", "2026-11-19T12:00:00Z"),  # now, less the 12 hours by which the catalog may be late
    ]
    rest = A2_PRICES["on_demand"] - 2.9
    reported = {(point.effective_at_ms, round(point.nano_usd_per_hour / 1e9, 6)) for point in result.points}
    assert reported == {(millis(at), round(rest + usd, 6)) for at, usd in changes} | {
        (millis("2026-01-01T00:00:00Z"), A2_PRICES["spot"])
    }


def test_a_month_of_list_history_that_is_refused_is_an_error_of_this_source_alone(server, list_history, poll):
    server.serve(cloud(A2, denied={"skus"}))
    assert isinstance(list_history("2026-11-20T00:00:00Z").error, PermissionDeniedError)
    server.serve(cloud(A2))
    assert len(poll().points) == 2


@given(st.integers(0, 130_000), st.integers(1, 400))
def test_law_months_join_and_each_lies_in_one_month_of_google(hours, days):
    since = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
    until = since + timedelta(days=days)
    periods = list(months(since, until))
    assert periods[0][0] <= since
    assert periods[-1][1] == until
    assert all(before[1] == after[0] for before, after in pairwise(periods))
    for start, end in periods:
        first, last = (instant.astimezone(GOOGLES) for instant in (start, end - timedelta(microseconds=1)))
        assert (first.year, first.month, first.day, first.hour) == (last.year, last.month, 1, 0)
