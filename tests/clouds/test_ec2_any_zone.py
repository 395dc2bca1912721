"""Renting on AWS any of several types in any of several zones, through the unmodified boto3: an instant fleet, whose
template is its record.

The machines are not started here; tests/contract/test_aws.py runs real ones.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from providers.aws.codes import CODES, USED_TOKEN
from providers.aws.fleets import KEPT_S, ONE_BY_ONE_S, UNRESOLVED_KEPT_S
from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.base import LaunchSpec
from providers.errors import (
    AuthError,
    CapacityError,
    ConflictError,
    CutOffError,
    NotFoundError,
    NotTogetherError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RegionDisabledError,
    SetupError,
    UnavailableError,
)
from providers.instance import EndReason, InstanceState
from tests.clouds.aws import error
from tests.clouds.ec2 import IMAGE
from tests.clouds.ec2_account import HOUR_S, ON_DEMAND, SPOT, Account, opened, spec
from tests.clouds.ec2_fleets import Refused
from tests.clouds.ec2_networks import Networks
from tests.clouds.server import LoopbackServer

A, B = "use1-az1", "use1-az2"
NEXT_DOOR = SPOT.replace(A, B)
ONE_OF_EACH: dict[str, str] = {}
for _code, _meaning in CODES.items():
    ONE_OF_EACH.setdefault(f"{_meaning.kind.__name__}-{_meaning.scope}", _code)


def anywhere(offer_id: str = SPOT, also: str = NEXT_DOOR, **options: Any) -> LaunchSpec:
    return replace(spec(offer_id, **options), also=(also,))


def fill(account: Account, zone: str, machines: int = 0) -> None:
    account.ec2.capacity["g5.xlarge", zone, True] = machines


@contextmanager
def without_subnet(account: Account, zone: str) -> Iterator[None]:
    """The networks are those of all tests of the module."""
    provider = account.connect(regions=("us-east-1",))
    subnet, _ = provider._networks.place("tw-1", "us-east-1", zone)
    account.connections.client("ec2", "us-east-1").delete_subnet(SubnetId=subnet)
    yield
    account.connect(regions=("us-east-1",)).set_up("tw-1", lambda _: None)


def templates(account: Account) -> list[str]:
    return account.ec2.fleets.left("us-east-1")


def test_what_a_launch_in_any_zone_asks_for(account: Account) -> None:
    fill(account, A)
    provider = account.connect()
    landed = provider.launch_any(anywhere(time_to_live_s=HOUR_S))
    assert landed.offer_id == NEXT_DOOR
    (template,) = account.ec2.fleets.templates.values()
    data, row = template["data"], template["row"]
    assert row["LaunchTemplateName"] == "tradewind-token-1"
    assert data["ImageId"] == IMAGE
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert base64.b64decode(data["UserData"])[:2] == b"\x1f\x8b"
    assert "SubnetId" not in data["NetworkInterfaces"][0]
    assert {each["ResourceType"] for each in data["TagSpecifications"]} == {
        *("instance", "volume", "network-interface", "spot-instances-request"),
    }
    (form,) = (each.form for each in account.server.asked("Action=CreateFleet&"))
    assert form["Type"] == "instant"
    assert form["ClientToken"] == f"token-1-{row['LaunchTemplateId']}"
    assert form["SpotOptions.MinTargetCapacity"] == form["TargetCapacitySpecification.TotalTargetCapacity"] == "1"
    assert form["SpotOptions.AllocationStrategy"] == "price-capacity-optimized"
    assert form["SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    overrides = [key for key in form if key.endswith("SubnetId")]
    assert len({form[key] for key in overrides}) == 2
    (machine,) = account.ec2.alive()
    assert machine.tags["tradewind-job"] == "job-1"
    assert machine.tags["tradewind-lives"] == str(HOUR_S)
    (found,) = provider.describe(landed.instance_ids)
    assert (found.token, found.offer_id, found.tags) == ("token-1", NEXT_DOOR, spec().tags)


def test_on_demand_machines_are_taken_in_the_order_of_the_plan(account: Account) -> None:
    other = ON_DEMAND.replace(B, A)
    assert account.connect().launch_any(anywhere(ON_DEMAND, other)).offer_id == ON_DEMAND
    account.ec2.capacity["g5.xlarge", B, False] = 0
    assert account.connect().launch_any(anywhere(ON_DEMAND, other, token="token-2")).offer_id == other
    form = account.server.asked("Action=CreateFleet&")[-1].form
    assert form["OnDemandOptions.AllocationStrategy"] == "prioritized"
    assert form["TargetCapacitySpecification.DefaultTargetCapacityType"] == "on-demand"


def test_another_type_is_taken_where_the_first_has_no_room(account: Account) -> None:
    """One call asks for each type in each zone, and the machines are shown as what they are."""
    larger = [each.replace("g5.xlarge", "g5.2xlarge") for each in (SPOT, NEXT_DOOR)]
    for zone in (A, B):
        fill(account, zone)
    account.ec2.capacity["g5.2xlarge", A, True] = 0
    wanted = replace(spec(SPOT, count=2), also=(NEXT_DOOR, *larger))
    landed = account.connect().launch_any(wanted)
    assert landed.offer_id == larger[1]
    (form,) = (each.form for each in account.server.asked("Action=CreateFleet&"))
    asked = {
        (form[key], form[key.replace("InstanceType", "SubnetId")])
        for key in form
        if "Overrides" in key and key.endswith("InstanceType")
    }
    assert len(asked) == 4
    assert {kind for kind, _ in asked} == {"g5.xlarge", "g5.2xlarge"}
    assert form["SpotOptions.SingleInstanceType"] == "true"
    assert {each.offer_id for each in account.connect().describe(landed.instance_ids)} == {larger[1]}
    assert account.connect().launch_any(wanted) == landed
    assert len(account.ec2.instances) == 2


def test_on_demand_types_are_taken_in_the_order_of_the_plan(account: Account) -> None:
    larger = ON_DEMAND.replace("g5.xlarge", "g5.2xlarge")
    assert account.connect().launch_any(anywhere(larger, ON_DEMAND)).offer_id == larger
    account.ec2.capacity["g5.2xlarge", B, False] = 0
    assert account.connect().launch_any(anywhere(larger, ON_DEMAND, token="token-2")).offer_id == ON_DEMAND


def test_no_capacity_in_any_zone_is_one_refusal_and_leaves_nothing(account: Account) -> None:
    fill(account, A)
    fill(account, B)
    with pytest.raises(CapacityError) as raised:
        account.connect().launch_any(anywhere())
    assert raised.value.scope == "zone"
    assert len(account.server.asked("Action=CreateFleet&")) == 1
    assert not account.ec2.instances
    assert not templates(account)
    fill(account, B, 1)
    assert account.connect().launch_any(anywhere()).offer_id == NEXT_DOOR


def test_a_quota_is_none_of_capacity(account: Account) -> None:
    account.ec2.quota = {"All G and VT Spot Instance Requests": 4}
    with pytest.raises(QuotaError):
        account.connect().launch_any(anywhere(count=2))
    assert not account.ec2.instances
    assert not templates(account)


def test_a_gang_lands_in_one_zone_or_nowhere(account: Account) -> None:
    fill(account, A, 2)
    fill(account, B, 2)
    with pytest.raises(CapacityError):
        account.connect().launch_any(anywhere(count=3))
    assert not account.ec2.instances
    fill(account, B, 3)
    landed = account.connect().launch_any(anywhere(count=3, token="token-2"))
    zones = Counter(each.row["Placement"]["AvailabilityZoneId"] for each in account.ec2.alive())
    assert zones == {B: 3}
    assert landed.instance_ids == tuple(sorted(f"aws-us-east-1-{each.id}" for each in account.ec2.alive()))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("action", ["CreateLaunchTemplate", "CreateFleet"])
def test_a_launch_whose_answer_is_lost_is_repeated_without_a_second_machine(
    account: Account, action: str, tells: bool, count: int
) -> None:
    """Whether EC2 names the machines in its answer to the repeated call or not."""
    account.ec2.fleets.tells_machines = tells
    fill(account, A)
    account.fails(action, lost=True)
    with pytest.raises(CutOffError) as raised:
        account.connect().launch_any(anywhere(count=count))
    assert raised.value.retryable
    fill(account, A, 9)
    first = [each.id for each in account.connect().find("token-1", "us-east-1")]
    assert len(first) == (count if action == "CreateFleet" else 0)
    landed = account.connect().launch_any(anywhere(count=count))
    if action == "CreateFleet":
        assert (landed.offer_id, sorted(landed.instance_ids)) == (NEXT_DOOR, sorted(first))
    for _ in range(2):
        assert account.connect().launch_any(anywhere(count=count)) == landed
    assert len(account.ec2.instances) == count
    assert len(templates(account)) == 1


@pytest.mark.parametrize("action", ["CreateLaunchTemplate", "CreateFleet"])
def test_an_effect_that_comes_late_does_not_double_the_machine(account: Account, action: str) -> None:
    failed = error("InternalError", "said AWS", 500)
    late = account.server.postpones(lambda request: request.form.get("Action") == action, failed)
    with pytest.raises(UnavailableError):
        account.connect().launch_any(anywhere())
    fill(account, A)
    landed = account.connect().launch_any(anywhere())
    fill(account, A, 9)
    fill(account, B)
    account.server.cloud(late[0])
    assert len(account.ec2.instances) == 1
    assert account.connect().launch_any(anywhere()) == landed


@pytest.mark.parametrize("action", ["CreateLaunchTemplate", "CreateFleet"])
def test_each_refusal_has_its_class_and_launches_nothing(account: Account, action: str) -> None:
    """One provider meets them all, and works afterwards."""
    provider = account.connect()
    for code in sorted({*ONE_OF_EACH.values(), *USED_TOKEN[:1]}):
        kind = CODES[code].kind
        if kind is PermissionDeniedError:
            continue  # then there are no fleets
        if kind is ConflictError and action == "CreateFleet":
            kind = UnavailableError  # it was asked for in other zones, say
        account.fails(action, answer=error(code, "said AWS", 400))
        with pytest.raises(ProviderError) as raised:
            provider.launch_any(anywhere())
        assert type(raised.value) is (RegionDisabledError if kind is AuthError else kind), code
        assert not account.ec2.instances, code
        account.server.faults.clear()
    assert len(provider.launch_any(anywhere()).instance_ids) == 1
    assert len(account.ec2.instances) == 1


def test_a_fleet_that_was_refused_in_each_zone_says_why(account: Account) -> None:
    """Also what may pass: the next call asks again."""
    provider = account.connect()
    run = account.ec2.fleets.launch
    for code in ("InternalError", "RequestLimitExceeded", "InvalidSubnetID.NotFound"):

        def refuse(region: str, asked: Any, code: str = code) -> list[str]:
            raise Refused(code, "said AWS")

        account.ec2.fleets.launch = refuse
        with pytest.raises(CODES[code].kind):
            provider.launch_any(anywhere())
        assert not templates(account), code
    account.ec2.fleets.launch = run
    assert len(provider.launch_any(anywhere()).instance_ids) == 1


def refusing(account: Account, codes: dict[str, str], otherwise: str = "InsufficientInstanceCapacity") -> None:
    """Fleets are refused with these codes for these types."""

    def refuse(region: str, asked: Any) -> list[str]:
        raise Refused(codes.get(asked["InstanceType"], otherwise), "said AWS")

    account.ec2.fleets.launch = refuse


def lands_alone(account: Account, provider: AwsProvider) -> None:
    """One offer at a time is launched, for an hour; then fleets are tried again."""
    assert provider.most_offers(1) == 1
    assert not account.ec2.instances
    assert not templates(account)
    (alone,) = provider.launch(spec(token="token-2"))
    assert [each.id for each in account.connect().find("token-2", "us-east-1")] == [alone]
    account.clock.advance(ONE_BY_ONE_S + 1)
    assert provider.most_offers(1) > 1


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "SomethingNew"])
def test_a_fleet_that_may_launch_nothing_blames_no_offer(account: Account, code: str) -> None:
    refusing(account, {}, code)
    provider = account.connect()
    with pytest.raises(NotTogetherError, match=code):
        provider.launch_any(anywhere())
    lands_alone(account, provider)


@pytest.mark.parametrize("what", ["CreateFleet", "CreateLaunchTemplate", "DescribeLaunchTemplates", "unknown"])
def test_an_account_that_may_not_have_such_fleets_asks_for_one_offer_at_a_time(account: Account, what: str) -> None:
    provider = account.connect()
    assert provider.most_offers(1) > 1
    provider._networks.place("tw-1", "us-east-1", A)
    if what == "unknown":
        account.ec2.fleets.invalid = True
    else:
        account.ec2.denied = {what}
    with pytest.raises(NotTogetherError):
        provider.launch_any(anywhere())
    lands_alone(account, provider)


@pytest.mark.parametrize("how", ["denied", "unknown"])
def test_what_comes_after_a_lost_answer_does_not_launch_in_another_way(account: Account, how: str) -> None:
    account.fails("CreateFleet", lost=True)
    with pytest.raises(UnavailableError):
        account.connect().launch_any(anywhere())
    if how == "denied":
        account.ec2.denied = {"CreateFleet"}
    else:
        account.ec2.fleets.invalid = True
    for _ in range(2):
        with pytest.raises(UnavailableError, match="may have accepted one"):
            account.connect().launch_any(anywhere())
    account.ec2.denied, account.ec2.fleets.invalid = set(), False
    (machine,) = account.connect().find("token-1", "us-east-1")
    assert account.connect().launch_any(anywhere()).instance_ids == (machine.id,)
    assert len(account.ec2.instances) == 1


def test_a_launch_that_may_no_longer_be_recorded_keeps_its_record(account: Account) -> None:
    landed = account.connect().launch_any(anywhere())
    account.ec2.denied = {"CreateLaunchTemplate"}
    assert account.connect().launch_any(anywhere()) == landed


def test_without_a_look_at_templates_a_machine_is_found_by_its_tag(account: Account) -> None:
    landed = account.connect().launch_any(anywhere())
    account.ec2.denied = {"DescribeLaunchTemplates"}
    assert [each.id for each in account.connect().find("token-1", "us-east-1")] == list(landed.instance_ids)


@pytest.mark.parametrize(
    ("larger", "otherwise", "expected"),
    [
        ("VcpuLimitExceeded", "InsufficientInstanceCapacity", CapacityError),
        ("InvalidAMIID.NotFound", "InsufficientInstanceCapacity", CapacityError),
        ("SomethingNew", "InsufficientInstanceCapacity", CapacityError),
        ("VcpuLimitExceeded", "VcpuLimitExceeded", QuotaError),
        ("VcpuLimitExceeded", "InternalError", UnavailableError),
        ("VcpuLimitExceeded", "InvalidAMIID.NotFound", NotTogetherError),
    ],
)
def test_different_refusals_of_one_fleet_blame_no_offer_wrongly(
    account: Account, larger: str, otherwise: str, expected: type[ProviderError]
) -> None:
    refusing(account, {"g5.2xlarge": larger}, otherwise)
    with pytest.raises(ProviderError) as raised:
        account.connect().launch_any(anywhere(also=SPOT.replace("g5.xlarge", "g5.2xlarge")))
    assert type(raised.value) is expected
    if expected is not UnavailableError:
        assert larger in str(raised.value)


def test_a_subnet_that_is_gone_after_a_lost_answer_is_no_conflict(account: Account) -> None:
    fill(account, B)
    account.fails("CreateFleet", lost=True)
    with pytest.raises(UnavailableError):
        account.connect().launch_any(anywhere())
    with without_subnet(account, B):
        landed = account.connect().launch_any(anywhere())
        assert landed.offer_id == SPOT
        (machine,) = account.ec2.instances.values()
        tags, machine.row["Tags"] = machine.row["Tags"], []
        with pytest.raises(UnavailableError, match="in other zones"):
            account.connect().launch_any(anywhere())
        machine.row["Tags"] = tags
        assert account.connect().launch_any(anywhere()) == landed
    assert len(account.ec2.instances) == 1


def test_the_record_of_a_launch_whose_fleet_is_not_known_is_kept_for_a_day(account: Account) -> None:
    account.fails("CreateFleet", lost=True)
    with pytest.raises(UnavailableError):
        account.connect().launch_any(anywhere(time_to_live_s=HOUR_S))
    account.clock.advance(UNRESOLVED_KEPT_S - 60)
    account.connect().list_owned("tw-1")
    assert account.connect().launch_any(anywhere(time_to_live_s=HOUR_S))
    assert len(account.ec2.instances) == 1
    account.ec2.fleets.templates[templates(account)[0]]["row"]["Tags"].pop()
    account.clock.advance(120)
    account.connect().list_owned("tw-1")
    assert not templates(account)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_machine_that_has_ended_is_found_by_the_record_of_its_launch(account: Account, recorded: bool) -> None:
    """Its tags are gone. If the control plane died before it could note the fleet, the next launch does."""
    if not recorded:
        account.fails("CreateTags", lost=True, times=None)
    landed = account.connect().launch_any(anywhere())
    account.server.faults.clear()
    if not recorded:
        account.ec2.fleets.templates[templates(account)[0]]["row"]["Tags"].pop()  # the effect came to nothing, too
        assert account.connect().launch_any(anywhere()) == landed
    account.connect().terminate(landed.instance_ids[0])
    (machine,) = account.ec2.instances.values()
    machine.row["Tags"] = []
    (found,) = account.connect().find("token-1", "us-east-1")
    assert (found.id, found.token, found.state) == (landed.instance_ids[0], "token-1", InstanceState.TERMINATED)
    assert found.end_reason is EndReason.USER
    assert found.offer_id == landed.offer_id
    assert account.connect().launch_any(anywhere()) == landed
    assert len(account.ec2.instances) == 1


def test_a_record_that_is_not_shown_yet_is_asked_for_again(account: Account) -> None:
    account.connect().launch_any(anywhere())
    absent = error("InvalidLaunchTemplateName.NotFoundException", "does not exist", 400)
    provider = account.connect()
    for zone in (A, B):
        provider._networks.place("tw-1", "us-east-1", zone)  # it looks for templates too
    account.fails("DescribeLaunchTemplates", answer=absent, times=None)
    with pytest.raises(UnavailableError, match="does not yet show"):
        provider.launch_any(anywhere())
    assert len(account.ec2.instances) == 1


def test_another_request_with_the_token_is_a_conflict(account: Account) -> None:
    account.connect().launch_any(anywhere())
    for other in (anywhere(user_data="other\n"), anywhere(count=2), anywhere(NEXT_DOOR, SPOT), anywhere(disk_gb=7)):
        with pytest.raises(ConflictError):
            account.connect().launch_any(other)
    assert len(account.ec2.instances) == 1


def test_a_zone_whose_subnet_was_not_made_yet_is_left_out(account: Account) -> None:
    with without_subnet(account, B):
        assert account.connect().launch_any(anywhere()).offer_id == SPOT
        with pytest.raises(SetupError):
            account.connect().launch_any(anywhere(NEXT_DOOR, SPOT, token="token-2"))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (SPOT.replace("spot", "on_demand"), SetupError),
        (SPOT.replace("us-east-1/use1-az1", "eu-west-1/euw1-az1"), SetupError),
        (SPOT.replace("g5.xlarge", "g5.48xlarge"), NotFoundError),
    ],
)
def test_only_offers_of_one_region_and_market_go_together(
    account: Account, other: str, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        account.connect().launch_any(anywhere(also=other))
    assert not templates(account)


def test_records_are_removed_two_hours_later_or_with_the_networks(account: Account) -> None:
    provider = account.connect(regions=("us-east-1",))
    landed = provider.launch_any(anywhere())
    provider.terminate(landed.instance_ids[0])
    account.clock.advance(KEPT_S - 60)
    provider.list_owned("tw-1")
    assert len(templates(account)) == 1
    account.clock.advance(120)
    provider.list_owned("tw-1")
    assert not templates(account)
    landed = provider.launch_any(anywhere(token="token-2"))
    provider.terminate(landed.instance_ids[0])
    network = provider.networks("tw-1")[0]
    assert [part.id for part in network.parts if part.kind == "launch template"] == templates(account)
    said: list[str] = []
    provider.tear_down("tw-1", said.append)
    assert not templates(account)
    assert any("launch template" in line for line in said)
    assert not any(part for each in provider.networks("tw-1") for part in each.parts)


def test_templates_of_others_stay(account: Account) -> None:
    ec2 = account.connections.client("ec2", "us-east-1")
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "tradewind-install", "Value": "tw-2"}]}]
    ec2.create_launch_template(
        LaunchTemplateName="other", LaunchTemplateData={"ImageId": IMAGE}, TagSpecifications=tags
    )
    account.clock.advance(2 * KEPT_S)
    provider = account.connect(regions=("us-east-1",))
    provider.list_owned("tw-1")
    provider.tear_down("tw-1", lambda _: None)
    assert len(templates(account)) == 1


def test_boto3_repeats_no_call_that_would_make_something_twice(ec2_clients: tuple[LoopbackServer, Connections]) -> None:
    account = opened(ec2_clients[0], Connections(attempts=3), Networks())
    account.connect(regions=("us-east-1",)).set_up("tw-1", lambda _: None)
    for action in ("CreateLaunchTemplate", "CreateFleet"):
        for how in ({"answer": error("InternalError", "said AWS", 500)}, {"cut": True}):
            account.server.requests.clear()
            account.fails(action, times=None, **how)
            with pytest.raises(ProviderError):
                account.connect(regions=("us-east-1",)).launch_any(anywhere(token=f"token-{len(how)}-{action}"))
            assert len(account.server.asked(f"Action={action}&")) == 1, (action, how)
            account.server.faults.clear()


def test_a_fleet_that_was_accepted_may_have_made_machines_though_nobody_may_look(account: Account) -> None:
    """Otherwise nobody would look for the machine. Nor is another one launched without a fleet."""
    account.ec2.fleets.tells_machines = False
    account.fails("CreateFleet", lost=True)
    with pytest.raises(CutOffError):
        account.connect().launch_any(anywhere())
    for code in ("UnauthorizedOperation", "SomethingNew", "InvalidFleetId.NotFound"):
        account.fails("DescribeFleets", answer=error(code, "said AWS", 400))
        with pytest.raises(UnavailableError):
            account.connect().launch_any(anywhere())
    assert len(account.ec2.instances) == 1
    assert len(account.connect().launch_any(anywhere()).instance_ids) == 1
    assert len(account.ec2.instances) == 1


def test_too_few_machines_of_a_fleet_are_ended(account: Account) -> None:
    """EC2 promises that it does not happen."""
    run = account.ec2.fleets.launch
    account.ec2.fleets.launch = lambda region, asked: run(region, {**asked, "MinCount": 1, "MaxCount": 1})
    with pytest.raises(CapacityError):
        account.connect().launch_any(anywhere(count=2))
    assert not account.ec2.alive()
    assert not templates(account)
