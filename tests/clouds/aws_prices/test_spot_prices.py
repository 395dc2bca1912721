"""What market.md section 4 says of AWS: the history of spot prices, and the offers that it makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from providers.aws.prices.spot import DAY_MS, SpotPrices
from providers.aws.session import Connections
from providers.errors import (
    FormatError,
)
from tests.clouds.aws import AwsCloud, AwsType, Change
from tests.clouds.aws_prices.conftest import HOUR, NOW, P4D, cloud, history, region
from tests.clouds.conftest import flags
from tests.clouds.server import Request, Response


def test_the_last_change_before_the_start_is_the_price_in_force(server, spot):
    server.serve(cloud(Change(P4D, 0, NOW - 50 * HOUR, "9.0"), Change(P4D, 0, NOW - 20 * HOUR, "10.5")))
    current = SpotPrices(connections=spot._connections, backfill_days=0).poll("us-east-1", NOW, None)
    assert history(current) == [(-20, 10.5)]
    assert server.asked("Action=DescribeSpotPriceHistory")[-1].form["StartTime"].startswith("2026-09-21T14:13:20")


def test_the_first_poll_brings_ninety_days_and_the_next_one_starts_at_the_last_change(server, spot):
    at = [NOW - 89 * DAY_MS, NOW - 3 * HOUR, NOW - 2 * HOUR, NOW - HOUR]
    server.serve(cloud(*[Change(P4D, 0, at_ms, f"{index}.5") for index, at_ms in enumerate(at)]))
    assert [price for _, price in history(spot.poll("us-east-1", NOW, None))] == [0.5, 1.5, 2.5, 3.5]
    assert history(spot.poll("us-east-1", NOW, at[2])) == [(-3, 1.5), (-2, 2.5), (-1, 3.5)]


def test_prices_arrive_as_text_and_are_kept_to_the_last_digit(server, spot):
    server.serve(cloud(Change(P4D, 0, NOW - HOUR, "10.123456789")))
    [point] = spot.poll("us-east-1", NOW, None).points
    assert point.nano_usd_per_hour == 10_123_456_789


def test_a_dead_endpoint_fails_in_seconds_where_botocore_would_wait_for_minutes():
    config = Connections().client("ec2", "us-east-1").meta.config
    assert config.connect_timeout <= 5
    assert config.retries == {"mode": "adaptive", "total_max_attempts": 3}


def test_history_longer_than_aws_keeps_is_refused():
    with pytest.raises(ValueError, match="keeps 90 days"):
        SpotPrices(backfill_days=91)


def test_every_page_is_read_and_an_empty_token_ends_them(server, spot):
    changes = [Change(P4D, 0, NOW - hours * HOUR, str(hours)) for hours in range(1, 11)]
    server.serve(cloud(*changes))
    result = spot.poll("us-east-1", NOW, None)
    assert len(history(result)) == 10
    assert len(server.asked("Action=DescribeSpotPriceHistory")) == 4
    assert result.error is None


def test_a_token_that_repeats_forever_is_an_error_and_not_a_loop(server, spot):
    server.serve(cloud(Change(P4D, 0, NOW - HOUR, "9.0"), *[Change(P4D, 1, NOW - n * HOUR, "8") for n in range(9)]))
    first_page = server.cloud
    server.serve(lambda request: first_page(_without_token(request)))
    assert isinstance(spot.poll("us-east-1", NOW, None).error, FormatError)


def test_a_wide_circle_of_tokens_is_an_error_though_botocore_does_not_see_it(server, spot):
    changes = [Change(P4D, 1, NOW - n * HOUR, str(n)) for n in range(1, 10)]
    server.serve(cloud(*changes, page_rows=3))
    whole = server.cloud

    def circle(request: Request) -> Response:
        answer = whole(request)
        return replace(answer, body=answer.body.replace(b"<nextToken></nextToken>", b"<nextToken>3</nextToken>"))

    server.serve(circle)
    result = spot.poll("us-east-1", NOW, None)
    assert isinstance(result.error, FormatError)
    assert len(server.asked("Action=DescribeSpotPriceHistory")) <= 4
    assert len(result.points) == 9, "what came before is kept"


def _without_token(request: Request) -> Request:
    body = b"&".join(part for part in request.body.split(b"&") if not part.startswith(b"NextToken"))
    return Request(request.method, request.path, request.query, request.headers, body)


def test_newest_first_answers_come_out_in_order_of_time(server, spot):
    server.serve(cloud(*[Change(P4D, 0, NOW - hours * HOUR, str(20 - hours)) for hours in (3, 1, 2)]))
    assert history(spot.poll("us-east-1", NOW, None)) == [(-3, 17.0), (-2, 18.0), (-1, 19.0)]


def test_prices_that_aws_repeats_unchanged_are_no_changes(server, spot):
    prices = ["9.0", "9.0", "9.000", "9.1", "9.1"]
    server.serve(cloud(*[Change(P4D, 0, NOW - (9 - n) * HOUR, usd) for n, usd in enumerate(prices)]))
    assert history(spot.poll("us-east-1", NOW, None)) == [(-9, 9.0), (-6, 9.1)]


def test_only_linux_rows_count_and_only_they_are_asked_for(server, spot):
    windows = [Change(P4D, 0, NOW - HOUR, "99", "Windows"), Change(P4D, 0, NOW - HOUR, "98", "SUSE Linux")]
    server.serve(cloud(Change(P4D, 0, NOW - 2 * HOUR, "9.0"), *windows))
    assert history(spot.poll("us-east-1", NOW, None)) == [(-2, 9.0)]
    assert server.asked("Action=DescribeSpotPriceHistory")[0].form["ProductDescription.1"] == "Linux/UNIX"


def test_offers_are_keyed_by_zone_id_because_names_are_shuffled_per_account(server, spot):
    """us-east-1a is use1-az2 here: two accounts that compare names compare different places."""
    server.serve(cloud(Change(P4D, 0, NOW - HOUR, "9.0"), Change(P4D, 1, NOW - HOUR, "7.0")))
    result = spot.poll("us-east-1", NOW, None)
    assert {offer.zone: history(result, offer.id)[0][1] for offer in result.offers} == {
        "use1-az1": 9.0, "use1-az2": 7.0,
    }  # fmt: skip


def test_a_local_zone_keeps_its_own_id_and_every_zone_its_own_price(server, spot):
    here = region(
        *[Change(P4D, zone, NOW - HOUR, usd) for zone, usd in ((0, "9"), (1, "8"), (2, "7"))],
        zones=("use1-az1", "use1-az2", "use1-atl2-az1"),
    )
    server.serve(AwsCloud({"us-east-1": here}, {P4D: AwsType(P4D)}))
    assert [offer.zone for offer in spot.poll("us-east-1", NOW, None).offers] == [
        "use1-atl2-az1",
        "use1-az1",
        "use1-az2",
    ]


def test_a_price_in_a_zone_without_the_hardware_is_a_phantom(server, spot):
    here = region(Change(P4D, 0, NOW - HOUR, "9.0"), Change(P4D, 1, NOW - HOUR, "2.0"), offered={(P4D, 0)})
    server.serve(AwsCloud({"us-east-1": here}, {P4D: AwsType(P4D)}))
    result = spot.poll("us-east-1", NOW, None)
    assert [offer.zone for offer in result.offers] == ["use1-az1"]
    assert flags(result) == [("no_hardware", f"{P4D} in use1-az2")]
    assert result.flagged[0].point is not None, "it is kept"


def test_a_type_that_is_not_sold_as_spot_is_not_a_spot_offer_despite_its_price(server, spot):
    p5 = AwsType("p5.4xlarge", "H100", 1, 81920, usage=("on-demand",))
    here = region(Change("p5.4xlarge", 0, NOW - HOUR, "4.3"), offered={("p5.4xlarge", 0)})
    server.serve(AwsCloud({"us-east-1": here}, {"p5.4xlarge": p5}))
    result = spot.poll("us-east-1", NOW, None)
    assert (result.offers, flags(result)) == ((), [("no_hardware", "p5.4xlarge in use1-az1")])


def test_a_type_without_a_spot_row_is_not_offered_as_spot(server, spot):
    server.serve(cloud())
    result = spot.poll("us-east-1", NOW, None)
    assert (result.offers, result.flagged, result.error) == ((), (), None)


@pytest.mark.parametrize(
    ("gpu", "mib", "canonical"),
    [("A100", 40960, "A100-40GB"), ("A100", 81920, "A100-80GB"), ("H100", 81920, "H100"), ("V100", 16384, "V100")],
)
def test_a_gpu_is_recognised_by_its_name_and_memory(server, spot, gpu, mib, canonical):
    kind = AwsType(P4D, gpu, 8, mib)
    server.serve(AwsCloud({"us-east-1": region(Change(P4D, 0, NOW - HOUR, "9.0"))}, {P4D: kind}))
    (offer,) = spot.poll("us-east-1", NOW, None).offers
    assert (offer.gpu, offer.gpu_count) == (canonical, 8)


def test_an_unknown_gpu_is_kept_and_flagged(server, spot):
    kind = AwsType(P4D, "Z9000", 8, 999_999)
    server.serve(AwsCloud({"us-east-1": region(Change(P4D, 0, NOW - HOUR, "9.0"))}, {P4D: kind}))
    result = spot.poll("us-east-1", NOW, None)
    assert flags(result) == [("unknown_gpu", f"{P4D} in use1-az1")]
    assert "Z9000 999999 MiB" in result.flagged[0].detail


def test_a_malformed_row_costs_only_itself(server, spot):
    rows = [Change(P4D, 0, NOW - 2 * HOUR, "9.0"), Change(P4D, 0, NOW - HOUR, "cheap"), Change(P4D, -1, NOW, "3.0")]
    server.serve(cloud(*rows, Change(P4D, 1, NOW - HOUR, "-1")))
    result = spot.poll("us-east-1", NOW, None)
    assert history(result) == [(-2, 9.0)]
    assert [flag for flag, _ in flags(result)] == ["malformed"] * 3
    assert result.error is None
