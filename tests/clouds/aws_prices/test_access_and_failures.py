"""What market.md section 4 says of AWS: regions, failures, permissions, risk."""

from __future__ import annotations

import json

import pytest

from providers.aws.calls import CALLS
from providers.aws.permissions import access
from providers.aws.prices.risk import Interruptions
from providers.aws.prices.spot import SpotPrices
from providers.aws.session import Connections
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
from tests.clouds.aws import THROTTLED, Change, error
from tests.clouds.aws_prices.conftest import HOUR, NOW, P4D, answers, cloud, history, listed, region
from tests.clouds.server import Fault, Response


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


def test_the_report_says_what_the_account_may_read_and_which_line_is_missing(server, connections):
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
