"""Renting on AWS, through the unmodified boto3: launches, refusals, what EC2 shows late, ends and prices.

The machines are not started here; tests/contract/test_aws.py and tests/e2e/test_three_clouds.py run real ones.
"""

from __future__ import annotations

import pytest

from providers.aws.codes import CODES
from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.billing.charges import minimum_nano_usd, rate_card
from providers.errors import (
    CapacityError,
    ConflictError,
    CutOffError,
    NotFoundError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    SetupError,
    UnavailableError,
)
from providers.instance import EndReason, InstanceState
from providers.money import cost_nano_usd, usd
from tests.clouds.aws import Change, error
from tests.clouds.ec2 import IMAGE, PARAMETER, QUOTAS, Instance
from tests.clouds.ec2_account import HOUR_S, ON_DEMAND, SPOT, Account, spec


def the_machine(account: Account) -> Instance:
    (machine,) = account.ec2.instances.values()
    return machine


# --- launches ---


def test_what_a_launch_asks_for(account: Account) -> None:
    account.connect().launch(spec(time_to_live_s=HOUR_S))
    (request,) = account.launches()
    form = request.form
    assert form["ClientToken"] == "token-1"
    assert (form["MinCount"], form["MaxCount"]) == ("1", "1")
    assert form["ImageId"] == IMAGE
    assert form["Placement.AvailabilityZoneId"] == "use1-az1"
    assert form["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert form["MetadataOptions.HttpTokens"] == "required"
    assert form["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    assert form["InstanceMarketOptions.MarketType"] == "spot"
    assert form["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert form["BlockDeviceMapping.1.Ebs.VolumeSize"] == "100"
    assert form["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    tagged = [form[f"TagSpecification.{number}.ResourceType"] for number in range(1, 5)]
    assert tagged == ["instance", "volume", "network-interface", "spot-instances-request"]
    assert the_machine(account).tags["tradewind-install"] == "tw-1"
    assert the_machine(account).tags["tradewind-lives"] == "3600"


def test_a_disk_has_room_for_data_and_checkpoints(account: Account) -> None:
    account.connect(disk_gb=60).launch(spec(disk_gb=250))
    assert account.launches()[0].form["BlockDeviceMapping.1.Ebs.VolumeSize"] == "310"


def test_an_on_demand_machine_is_no_spot_machine(account: Account) -> None:
    (name,) = account.connect().launch(spec(ON_DEMAND))
    assert not any(key.startswith("InstanceMarketOptions") for key in account.launches()[0].form)
    (machine,) = account.connect().describe([name])
    assert machine.offer_id == ON_DEMAND
    assert machine.state is InstanceState.RUNNING


def test_a_launch_is_sent_once_although_boto3_repeats_refusals(account: Account) -> None:
    account.ec2.capacity["g5.xlarge", "use1-az1", True] = 0
    patient = Connections(attempts=3)
    with pytest.raises(CapacityError, match="sufficient g5") as raised:
        AwsProvider(account.connect()._settings, account.clock, patient).launch(spec())
    assert raised.value.scope == "zone"
    assert len(account.launches()) == 1


def test_several_machines_are_launched_all_or_none(account: Account) -> None:
    account.ec2.capacity["g5.xlarge", "use1-az1", True] = 2
    with pytest.raises(CapacityError):
        account.connect().launch(spec(count=3))
    assert not account.ec2.instances
    assert len(account.connect().launch(spec(count=2))) == 2
    assert len(account.launches()) == 2


def test_a_launch_whose_answer_is_lost_is_repeated_without_a_second_machine(account: Account) -> None:
    account.fails("RunInstances", lost=True)
    with pytest.raises(CutOffError) as raised:
        account.connect().launch(spec())
    assert raised.value.retryable
    again = account.connect().launch(spec())
    assert again == (f"aws-us-east-1-{the_machine(account).id}",)


def test_a_new_image_does_not_make_a_repeated_launch_another_one(account: Account) -> None:
    first = account.connect().launch(spec())
    account.ec2.parameters[PARAMETER] = "ami-0fedcba9876543210"
    account.ec2.images.add("ami-0fedcba9876543210")
    assert account.connect().launch(spec()) == first
    assert the_machine(account).row["ImageId"] == IMAGE
    with pytest.raises(ConflictError):
        account.connect().launch(spec(user_data="other\n"))


def test_what_a_used_token_has_launched_may_not_be_shown_yet(account: Account) -> None:
    account.ec2.lag_s = 30
    account.connect().launch(spec())
    with pytest.raises(UnavailableError, match="does not yet show"):
        account.connect().launch(spec(user_data="other\n"))


def test_quotas_are_the_accounts_and_not_the_zones(account: Account) -> None:
    account.ec2.quota = dict.fromkeys(QUOTAS, 0)
    for offer in (SPOT, ON_DEMAND):
        with pytest.raises(QuotaError, match="limit") as raised:
            account.connect().launch(spec(offer))
        assert raised.value.scope == "region"
        assert "service-quotas" in raised.value.hint


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_known_code_becomes_the_error_of_the_table(account: Account, code: str) -> None:
    account.fails("RunInstances", answer=error(code, "said AWS", 503 if code == "RequestLimitExceeded" else 400))
    expected = CODES[code].kind
    if code.startswith("Idempotent"):
        expected = UnavailableError  # it asks what was launched, and that is not shown
    if CODES[code].scope == "account" and expected.__name__ == "AuthError":
        expected = ProviderError  # of a region that is not enabled
    with pytest.raises(expected) as raised:
        account.connect().launch(spec())
    assert not account.ec2.instances
    if not code.startswith("Idempotent"):
        assert code in str(raised.value)


def test_an_unknown_code_is_an_error_of_the_request(account: Account) -> None:
    account.fails("RunInstances", answer=error("SomethingNew", "said AWS", 400))
    with pytest.raises(ProviderError, match="SomethingNew: said AWS") as raised:
        account.connect().launch(spec())
    assert not raised.value.retryable


def test_a_missing_permission_is_named_with_the_line_that_grants_it(account: Account) -> None:
    account.ec2.denied = {"RunInstances"}
    with pytest.raises(PermissionDeniedError) as raised:
        account.connect().launch(spec())
    assert raised.value.action == "ec2:RunInstances"
    assert '"Action": "ec2:RunInstances"' in raised.value.hint


# --- bad input: a named error, and nothing is launched ---


def test_user_data_beyond_the_limit_is_not_sent(account: Account) -> None:
    import secrets

    with pytest.raises(SetupError, match=r"has \d+ bytes; the limit is 16384"):
        account.connect().launch(spec(user_data=secrets.token_hex(20_000)))
    assert not account.launches()


def test_an_image_that_does_not_exist(account: Account) -> None:
    for image in ("ami-00000000", "ssm:/no/such"):
        with pytest.raises(SetupError) as raised:
            account.connect(image=image).launch(spec())
        assert "providers.aws.image" in raised.value.hint
    assert not account.launches()


def test_a_disk_that_is_smaller_than_the_image(account: Account) -> None:
    with pytest.raises(SetupError, match="smaller") as raised:
        account.connect(disk_gb=4).launch(spec())
    assert "disk_gb" in raised.value.hint


def test_only_what_is_configured_is_rented(account: Account) -> None:
    for other in (SPOT.replace("g5.xlarge", "g5.48xlarge"), SPOT.replace("us-east-1", "us-west-2"), "aws/what"):
        with pytest.raises(NotFoundError):
            account.connect().launch(spec(other))
    assert not account.launches()


# --- what EC2 shows late ---


def test_a_launch_that_is_not_shown_yet_is_neither_described_nor_gone(account: Account) -> None:
    account.ec2.lag_s = 60
    provider = account.connect()
    (name,) = provider.launch(spec())
    assert provider.describe([name]) == []
    assert provider.find("token-1", "us-east-1") == []
    with pytest.raises(UnavailableError, match="does not know"):
        provider.terminate(name)
    provider.renew([name], HOUR_S)
    account.clock.advance(provider.listing_lag_s)
    assert [each.id for each in provider.describe([name])] == [name]
    provider.terminate(name)
    assert provider.describe([name])[0].end_reason is EndReason.USER


def test_one_unknown_machine_does_not_hide_or_keep_others(account: Account) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec())
    unknown = "aws-us-east-1-i-00000000000000000"
    assert [each.id for each in provider.describe([unknown, name])] == [name]
    provider.renew([unknown, name], HOUR_S)
    assert the_machine(account).tags["tradewind-lives"] == f"{HOUR_S} from {account.clock.now_ms()}"
    provider.terminate(unknown)


def test_a_slow_end_is_not_the_end_but_ends_the_bill(account: Account) -> None:
    account.ec2.ending_s = 90
    provider = account.connect()
    (name,) = provider.launch(spec())
    account.clock.advance(600)
    asked_ms = account.clock.now_ms()
    provider.terminate(name)
    assert provider.describe([name])[0].state is InstanceState.STOPPING
    assert provider.list_owned("tw-1")
    account.clock.advance(90)
    (ended,) = provider.describe([name])
    assert ended.end_reason is EndReason.USER
    assert ended.billed_to_ms == asked_ms // 1000 * 1000
    assert the_machine(account).machine.said == ["asked to shut down", "ended"]  # type: ignore[attr-defined]


# --- ends ---


def test_a_notice_is_seen_with_its_deadline_and_the_end_with_its_time(account: Account) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec())
    account.clock.advance(600)
    account.ec2.announce(the_machine(account).id)
    noticed_ms = account.clock.now_ms()
    assert provider.describe([name])[0].notice_deadline_ms == noticed_ms // 1000 * 1000 + 120_000
    account.clock.advance(120)
    account.ec2.take(the_machine(account).id)
    account.clock.advance(300)  # nobody asks meanwhile
    (ended,) = account.connect().describe([name])
    assert ended.end_reason is EndReason.PREEMPTED
    assert ended.billed_to_ms == noticed_ms // 1000 * 1000 + 120_000
    assert ended.notice_deadline_ms is None


@pytest.mark.parametrize(("late_s", "reason"), [(0, EndReason.EXPIRED), (-300, EndReason.FAILED)])
def test_a_machine_that_shuts_down_has_failed_unless_its_time_is_over(
    account: Account, late_s: int, reason: EndReason
) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec(time_to_live_s=HOUR_S))
    account.clock.advance(HOUR_S + late_s)
    the_machine(account).machine.off = True  # type: ignore[misc]
    assert provider.describe([name])[0].end_reason is reason


def test_tags_that_ec2_takes_from_an_ended_machine_are_not_needed(account: Account) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec())
    provider.terminate(name)
    the_machine(account).row["Tags"] = []
    (ended,) = provider.find("token-1", "us-east-1")
    assert (ended.id, ended.token, ended.offer_id) == (name, "token-1", SPOT)
    assert provider.launch(spec()) == (name,)


# --- several regions ---


def test_machines_of_an_enabled_region_are_found_though_it_is_not_configured(account: Account) -> None:
    account.connect().launch(spec("aws/eu-west-1/euw1-az1/g5.xlarge/spot"))
    (found,) = account.connect(regions=("us-east-1",)).list_owned("tw-1")
    assert found.id.startswith("aws-eu-west-1-i-")
    assert not account.server.asked("ap-east-1")


def test_a_region_that_does_not_answer_hides_no_other_and_keeps_its_last_list(account: Account) -> None:
    provider = account.connect()
    (near,) = provider.launch(spec())
    (far,) = provider.launch(spec("aws/eu-west-1/euw1-az1/g5.xlarge/spot", token="token-2"))
    assert {each.id for each in provider.list_owned("tw-1")} == {near, far}
    account.fails("DescribeInstances", times=None, region="eu-west-1", answer=error("InternalError", "no", 500))
    assert {each.id for each in provider.list_owned("tw-1")} == {near, far}
    assert [each.id for each in account.connect().list_owned("tw-1")] == [near]
    with pytest.raises(UnavailableError):
        provider.describe([far])
    account.fails("DescribeInstances", times=None, answer=error("InternalError", "no", 500))
    with pytest.raises(UnavailableError):
        provider.list_owned("tw-1")


# --- prices ---


def test_the_configured_types_are_offered_with_and_without_gpus_but_not_on_xen(account: Account) -> None:
    provider = account.connect()
    offers = {offer.id: offer for offer in provider.offers()}
    assert offers[SPOT].gpu == "A10G"
    assert offers["aws/us-east-1/use1-az1/m7i.large/on_demand"].gpu is None
    assert not any("p3.2xlarge" in offer for offer in offers)
    assert len(offers) == 3 * 3 * 2  # zones, types, ways to buy
    prices = {point.offer_id: point.nano_usd_per_hour for point in provider.prices()}
    assert prices.keys() == offers.keys()
    assert prices[SPOT] == usd("0.40")
    assert prices[ON_DEMAND] == usd("1.006")


def test_spot_prices_are_asked_for_each_time_and_on_demand_prices_once_an_hour(account: Account) -> None:
    provider = account.connect(regions=("us-east-1",))
    for _ in range(3):
        provider.prices()
    assert len(account.server.asked("DescribeSpotPriceHistory")) == 3 * 2  # pages
    once = len(account.server.asked("RegionCode")) + len(account.server.asked("regionCode"))
    account.clock.advance(HOUR_S)
    provider.prices()
    assert len(account.server.asked("regionCode")) == 2 * once > 0


def test_a_region_without_prices_keeps_its_offers_and_hides_no_other(account: Account) -> None:
    provider = account.connect()
    before = list(provider.offers())
    account.fails("DescribeSpotPriceHistory", times=None, region="eu-west-1", answer=error("InternalError", "no", 500))
    assert {point.offer_id.split("/")[1] for point in provider.prices()} == {"us-east-1"}
    assert list(provider.offers()) == before
    account.fails("DescribeSpotPriceHistory", times=None, answer=error("InternalError", "no", 500))
    with pytest.raises(UnavailableError):
        provider.prices()


# --- bills ---


@pytest.mark.parametrize("later_s", [-1, 0, 1])
def test_the_minute_that_is_billed_at_least_costs_what_was_paid_last(account: Account, later_s: int) -> None:
    """A price that changes in the second in which the machine ends is not paid any more."""
    provider = account.connect()
    (name,) = provider.launch(spec())
    account.clock.advance(20)
    provider.terminate(name)
    machine = the_machine(account)
    assert machine.ended_at is not None
    began_ms, ended_ms = (round(at.timestamp() * 1000) for at in (machine.began_at, machine.ended_at))
    here = account.prices.regions["us-east-1"]
    here.changes.append(Change("g5.xlarge", here.zone_ids.index("use1-az1"), ended_ms + 1000 * later_s, "0.60"))
    account.clock.advance(5)
    points = [
        (each.effective_at_ms, each.nano_usd_per_hour) for each in provider.price_history(0) if each.offer_id == SPOT
    ]
    path = [each for each in points if each[0] <= ended_ms]
    minimum = minimum_nano_usd(rate_card("aws"), path, began_ms, ended_ms)
    billed = cost_nano_usd(path, began_ms, ended_ms) + minimum
    assert account.ec2.cost_nano_usd_of(machine) == billed
    assert (billed > 0.40 * 1e9 / 60) == (later_s < 0)
