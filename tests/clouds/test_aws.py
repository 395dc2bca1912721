"""What market.md section 4 says of AWS, each as a test: unmodified boto3 against a loopback AWS."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from providers.aws.calls import CALLS
from providers.aws.permissions import access
from providers.aws.prices.on_demand import OnDemandPrices
from providers.aws.prices.risk import Interruptions
from providers.aws.prices.spot import DAY_MS, SpotPrices
from providers.aws.session import Connections
from providers.collect.facts import PollResult
from providers.errors import (
    AuthError,
    ClockSkewError,
    CutOffError,
    ExpiredCredentialsError,
    FormatError,
    NoCredentialsError,
    PermissionDeniedError,
    RegionDisabledError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.policy import Use, permissions
from tests.clouds.aws import THROTTLED, AwsCloud, AwsRegion, AwsType, Change, error, price_file
from tests.clouds.conftest import flags
from tests.clouds.server import Fault, LoopbackServer, Request, Response

NOW = 1_790_000_000_000
HOUR = 3_600_000
P4D = "p4d.24xlarge"
A_SPOT = f"aws/us-east-1/use1-az1/{P4D}/spot"


def region(*changes: Change, zones: tuple[str, ...] = ("use1-az1", "use1-az2"), **fields) -> AwsRegion:
    offered = {(P4D, index) for index in range(len(zones))}
    return AwsRegion(list(zones), list(changes), **{"offered": offered, **fields})


def cloud(*changes: Change, **fields) -> AwsCloud:
    return AwsCloud({"us-east-1": region(*changes)}, {P4D: AwsType(P4D)}, **fields)


@pytest.fixture(scope="module")
def connections(server: LoopbackServer, environment: pytest.MonkeyPatch) -> Connections:
    """One attempt and short timeouts, so that nothing here waits."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "AKIALOOPBACK", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        environment.setenv(name, value)
    return Connections(connect_s=1.0, read_s=0.3, attempts=1)


@pytest.fixture
def spot(connections: Connections) -> SpotPrices:
    return SpotPrices(connections=connections)


@pytest.fixture
def on_demand(connections: Connections, server: LoopbackServer) -> OnDemandPrices:
    return OnDemandPrices(connections=connections, files=server.url, attempts=1)


def history(result: PollResult, offer_id: str = A_SPOT) -> list[tuple[int, float]]:
    """(hours before now, dollars) of an offer."""
    points = [point for point in result.points if point.offer_id == offer_id]
    return [((point.effective_at_ms - NOW) // HOUR, point.nano_usd_per_hour / 1e9) for point in points]


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
def test_a_gpu_is_told_by_its_name_and_memory(server, spot, gpu, mib, canonical):
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


def test_enabled_regions_are_those_that_the_account_has_switched_on(server, spot):
    here = cloud()
    here.regions["af-south-1"] = region(opt_in="not-opted-in")
    here.regions["eu-west-1"] = region(opt_in="opted-in")
    server.serve(here)
    assert spot.regions() == ["eu-west-1", "us-east-1"]


def test_a_region_that_is_not_switched_on_says_so(server, spot):
    here = cloud()
    here.regions["af-south-1"] = region(opt_in="not-opted-in")
    server.serve(here)
    failed = spot.poll("af-south-1", NOW, None).error
    assert isinstance(failed, RegionDisabledError)
    assert "enable-region --region-name af-south-1" in failed.hint


def answers(code: str, message: str = "x", status: int = 400) -> Fault:
    return Fault(lambda request: True, None, error(code, message, status))


@pytest.mark.parametrize(
    ("fault", "kind", "hint"),
    [
        (answers("RequestExpired", "Request has expired."), ClockSkewError, "clock"),
        (answers("AuthFailure", "Signature not yet current: not yet valid", 401), ClockSkewError, "clock"),
        (answers("ExpiredToken", "The security token has expired"), ExpiredCredentialsError, "sso login"),
        (answers("RequestLimitExceeded", "slow down", 503), ThrottledError, ""),
        (answers("InternalError", "oops", 500), UnavailableError, ""),
        (Fault(lambda request: True, None, cut=True), CutOffError, ""),
        (Fault(lambda request: True, None, hang=True), TimedOutError, ""),
    ],
    ids=["clock skew", "clock ahead", "expired", "throttled", "server fault", "half an answer", "hangs"],
)
def test_each_failure_has_its_own_name(server, spot, fault, kind, hint):
    server.serve(cloud(Change(P4D, 0, NOW - HOUR, "9.0")))
    server.faults = [fault]
    failed = spot.poll("us-east-1", NOW, None).error
    assert isinstance(failed, kind)
    assert hint in failed.hint


def test_a_denied_call_names_the_action_and_the_line_that_grants_it(server, spot):
    server.serve(cloud(denied={"DescribeSpotPriceHistory"}))
    failed = spot.poll("us-east-1", NOW, None).error
    assert isinstance(failed, PermissionDeniedError)
    assert failed.action == "ec2:DescribeSpotPriceHistory"
    assert json.loads(failed.hint.partition(": ")[2])["Action"] == "ec2:DescribeSpotPriceHistory"


def test_pages_that_came_before_an_error_are_kept_beside_it(server, spot):
    server.serve(cloud(*[Change(P4D, 0, NOW - hours * HOUR, str(hours)) for hours in range(1, 8)]))
    server.faults = [Fault(lambda request: b"NextToken=6" in request.body, 1, THROTTLED)]
    result = spot.poll("us-east-1", NOW, None)
    assert isinstance(result.error, ThrottledError)
    assert len(history(result)) == 6


def test_without_credentials_the_error_says_where_to_put_them(server, environment):
    server.serve(cloud())
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        patch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        bare = Connections(attempts=1)
        with pytest.raises(NoCredentialsError) as caught:
            SpotPrices(connections=bare).regions()
        (finding,) = access(bare)
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    assert (finding.works, finding.remedy) == (False, caught.value.hint)


def test_an_answer_without_its_list_is_not_an_empty_market(server, spot):
    server.serve(lambda request: Response(body=b"<DescribeInstanceTypesResponse/>", content_type="text/xml"))
    assert isinstance(spot.poll("us-east-1", NOW, None).error, FormatError)


def test_a_region_that_cannot_be_reached_is_named(environment, connections):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        failed = SpotPrices(attempts=1, connect_s=0.5).poll("us-east-1", NOW, None).error
    assert isinstance(failed, UnavailableError)
    assert "cannot be reached" in str(failed)


def test_a_wrong_key_is_not_a_disabled_region(server, spot):
    server.serve(cloud())
    server.faults = [answers("AuthFailure", "AWS was not able to validate the provided access credentials", 401)]
    with pytest.raises(AuthError, match="AuthFailure"):
        spot.regions()


@pytest.mark.parametrize(("asked", "kept"), [("Mon, 21 Sep 2026 14:23:20 GMT", 600.0), ("\u00b2", None)])
def test_aws_may_write_the_wait_as_a_date_or_as_nonsense(server, spot, asked, kept):
    server.serve(cloud())
    headers = {"Retry-After": asked, "Date": "Mon, 21 Sep 2026 14:13:20 GMT"}
    server.faults = [Fault(lambda request: True, None, error("RequestLimitExceeded", "slow", 503, headers))]
    failed = spot.poll("us-east-1", NOW, None).error
    assert (type(failed), failed.retry_after_s) == (ThrottledError, kept)


def test_throttled_calls_are_repeated_by_botocores_adaptive_mode(server, environment, connections):
    server.serve(cloud(Change(P4D, 0, NOW - HOUR, "9.0")))
    server.faults = [Fault(lambda request: b"InstanceTypeOfferings" in request.body, 1, THROTTLED)]
    result = SpotPrices(attempts=2).poll("us-east-1", NOW, None)
    assert result.error is None
    assert len(server.asked("Action=DescribeInstanceTypeOfferings")) == 2


# -- on-demand


def listed(**usd: str) -> AwsCloud:
    here = cloud()
    here.regions["us-east-1"].on_demand_usd = {name.replace("_", "."): price for name, price in usd.items()}
    return here


def prices(result: PollResult) -> dict[str, float]:
    return {point.offer_id: point.nano_usd_per_hour / 1e9 for point in result.points}


@pytest.mark.parametrize("account", [True, False], ids=["API", "file"])
def test_a_term_that_is_dated_ahead_is_not_the_price_yet(server, connections, account):
    """The loopback AWS announces half a dollar for every type, from 2036 on."""
    server.serve(listed(p4d_24xlarge="21.957"))
    source = OnDemandPrices(account=account, connections=connections, files=server.url, attempts=1)
    result = source.poll("us-east-1", NOW, None)
    assert {(point.effective_at_ms, point.nano_usd_per_hour) for point in result.points} == {
        (1_748_736_000_000, 21_957_000_000)
    }
    assert result.skipped["not_yet"] == 1


def test_on_demand_prices_come_from_the_api_as_strings_of_json_on_several_pages(server, on_demand):
    here = listed(p4d_24xlarge="21.9570000000", g5_xlarge="1.006", g6_xlarge="0.8048")
    here.regions["us-east-1"].offered |= {("g5.xlarge", 0), ("g6.xlarge", 1)}
    server.serve(here)
    assert prices(on_demand.poll("us-east-1", NOW, None)) == {
        f"aws/us-east-1/use1-az1/{P4D}/on_demand": 21.957,
        f"aws/us-east-1/use1-az2/{P4D}/on_demand": 21.957,
        "aws/us-east-1/use1-az1/g5.xlarge/on_demand": 1.006,
        "aws/us-east-1/use1-az2/g6.xlarge/on_demand": 0.8048,
    }
    assert len(server.asked("TERM_MATCH")) == 2


def test_the_pricing_api_is_asked_in_the_region_that_has_it(server, on_demand):
    server.serve(listed(p4d_24xlarge="21.9"))
    on_demand.poll("us-east-1", NOW, None)
    (request,) = server.asked("TERM_MATCH")
    assert "/us-east-1/pricing/" in request.headers["Authorization"]
    fields = {row["Field"]: row["Value"] for row in json.loads(request.body)["Filters"]}
    assert fields["tenancy"] == "Shared"
    assert fields["regionCode"] == "us-east-1"


def test_an_on_demand_price_without_any_zone_is_a_phantom(server, on_demand):
    server.serve(listed(p5_48xlarge="55.04"))
    result = on_demand.poll("us-east-1", NOW, None)
    assert (result.points, flags(result)) == ((), [("no_hardware", "aws/us-east-1/p5.48xlarge")])


def test_without_permission_the_public_lists_of_named_regions_are_read_instead(server, connections, on_demand):
    here = listed(p4d_24xlarge="21.957")
    here.denied = {"GetProducts"}
    server.serve(here)
    failed = on_demand.poll("us-east-1", NOW, None).error
    assert isinstance(failed, PermissionDeniedError)
    assert "public price lists" in failed.hint
    assert server.asked("index.csv") == [], "nobody asked for hundreds of megabytes"
    named = OnDemandPrices(connections=connections, files=server.url, regions=["us-east-1"], attempts=1)
    assert prices(named.poll("us-east-1", NOW, None)) == {f"aws/us-east-1//{P4D}/on_demand": 21.957}


def test_a_price_list_may_come_packed(server):
    text = gzip.compress(price_file({P4D: "21.957", "p5.48xlarge": "55.04"}).encode())
    server.serve(lambda request: Response(200, text, "text/csv", {"Content-Encoding": "gzip"}))
    source = OnDemandPrices(account=False, files=server.url, attempts=1)
    assert len(source.poll("us-east-1", NOW, None).points) == 2
    server.faults = [Fault(lambda request: True, None, cut=True)]
    assert isinstance(source.poll("us-east-1", NOW, None).error, CutOffError)


def test_the_public_list_needs_no_account_and_only_plain_rows_of_it_count(server):
    """Dedicated, Host, Windows, Reserved, with SQL, capacity blocks and price 0 are all in the file, and cheaper."""
    server.serve(listed(p4d_24xlarge="21.957", p5_48xlarge="55.04"))
    source = OnDemandPrices(account=False, files=server.url, attempts=1)
    result = source.poll("us-east-1", NOW, None)
    assert prices(result) == {
        f"aws/us-east-1//{P4D}/on_demand": 21.957,
        "aws/us-east-1//p5.48xlarge/on_demand": 55.04,
    }
    assert [(offer.gpu, offer.gpu_count, offer.memory_bytes >> 30) for offer in result.offers] == [
        ("A100-40GB", 8, 1152),
        ("H100", 8, 1152),
    ]
    assert result.skipped["other_product"] > 10
    assert result.skipped["billed_elsewhere"] > 0
    assert "us-east-1" in source.regions()
    assert [request.path for request in server.requests] == ["/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv"]


def test_a_price_list_that_ends_in_the_middle_keeps_its_whole_lines(server):
    server.serve(listed(p4d_24xlarge="21.957", p5_48xlarge="55.04", g5_xlarge="1.006"))
    server.faults = [Fault(lambda request: True, None, cut=True)]
    result = OnDemandPrices(account=False, files=server.url, attempts=1).poll("us-east-1", NOW, None)
    assert isinstance(result.error, CutOffError)
    assert prices(result) == {f"aws/us-east-1//{P4D}/on_demand": 21.957}


def test_a_line_of_the_price_list_that_lacks_cells_is_flagged_and_costs_only_itself(server):
    whole = listed(p4d_24xlarge="21.957")

    def torn(request: Request) -> Response:
        answer = whole(request)
        return replace(answer, body=answer.body + b'"SKU1","OnDemand","Linux","GPU instance"\n')

    server.serve(torn)
    result = OnDemandPrices(account=False, files=server.url, attempts=1).poll("us-east-1", NOW, None)
    assert prices(result) == {f"aws/us-east-1//{P4D}/on_demand": 21.957}
    assert flags(result) == [("malformed", "aws/us-east-1")]


def test_changed_columns_of_the_price_list_are_named(server):
    text = b'"SKU","TermType","Price"\n"a","OnDemand","1"\n'
    server.serve(lambda request: Response(200, text, "text/csv"))
    failed = OnDemandPrices(account=False, files=server.url, attempts=1).poll("us-east-1", NOW, None).error
    assert isinstance(failed, FormatError)
    assert "Instance Type" in str(failed)


def test_a_price_in_yuan_is_flagged_and_not_converted(server, on_demand):
    here = listed(p4d_24xlarge="150")
    here.currency = "CNY"
    server.serve(here)
    result = on_demand.poll("us-east-1", NOW, None)
    assert (result.points, flags(result)) == ((), [("currency", f"aws/us-east-1/{P4D}")])


def test_an_invalid_json_entry_of_the_price_list_affects_no_other_entry(server, on_demand):
    here = listed(p4d_24xlarge="21.9")
    here.products = ["{broken", here._product(P4D, "21.9"), json.dumps({"product": {}})]
    server.serve(here)
    result = on_demand.poll("us-east-1", NOW, None)
    assert len(result.points) == 2
    assert [flag for flag, _ in flags(result)] == ["malformed"] * 2


# -- risk, permissions


def test_interruption_buckets_of_the_spot_advisor_become_percents(server, connections):
    here = cloud(advisor={"spot_advisor": {"us-east-1": {"Linux": {P4D: {"s": 70, "r": 4}, "m5.large": {"r": 0}}}}})
    server.serve(here)
    source = Interruptions(url=f"{server.url}/spot-advisor-data.json", connections=connections)
    (signal,) = source.poll("global", NOW, None).signals
    assert (signal.kind, signal.instance_type, signal.low, signal.high) == ("interruption_percent", P4D, 20, 100)


def test_placement_scores_are_optional_and_fewer_than_three_types_are_refused(server, connections):
    with pytest.raises(ValueError, match="at least 3"):
        Interruptions(scores=[["p5.48xlarge"]])
    server.serve(cloud(advisor={"spot_advisor": {}}))
    url = f"{server.url}/spot-advisor-data.json"
    source = Interruptions(url=url, scores=[["a", "b", "c"]], connections=connections)
    signals = source.poll("global", NOW, None).signals
    assert {(signal.zone, signal.low) for signal in signals} == {("use1-az1", 6.0), ("use1-az2", 6.0)}
    server.faults = [answers("MaxConfigLimitExceeded", "too many configurations")]
    server.faults[0].match = lambda request: b"PlacementScores" in request.body
    assert isinstance(source.poll("global", NOW, None).error, ThrottledError)


def test_the_account_is_told_what_it_may_read_and_which_line_is_missing(server, connections):
    server.serve(cloud(Change(P4D, 0, NOW, "9"), denied={"DescribeInstanceTypeOfferings", "GetProducts"}))
    found = {finding.what: finding for finding in access(connections)}
    assert found["identity"].detail.endswith("user/prices")
    assert [what for what, finding in found.items() if not finding.works] == [
        "zones of instance types", "on-demand prices",
    ]  # fmt: skip
    assert not found["on-demand prices"].needed  # the public list needs no account
    assert "ec2:DescribeInstanceTypeOfferings" in found["zones of instance types"].remedy


def test_the_policy_lists_every_action_that_is_called(server, connections, spot, on_demand):
    here = listed(p4d_24xlarge="21.9")
    here.advisor = {"spot_advisor": {}}
    here.regions["us-east-1"].changes = [Change(P4D, 0, NOW - HOUR, "9")]
    server.serve(here)
    spot.regions()
    spot.poll("us-east-1", NOW, None)
    on_demand.poll("us-east-1", NOW, None)
    Interruptions(url=f"{server.url}/spot-advisor-data.json", scores=[["a", "b", "c"]], connections=connections).poll(
        "global", NOW, None
    )
    called = {f"ec2:{request.form['Action']}" for request in server.requests if b"Action=" in request.body}
    called |= {"pricing:GetProducts" for request in server.requests if "X-Amz-Target" in request.headers}
    assert called == set(permissions(CALLS, Use.PRICES))
