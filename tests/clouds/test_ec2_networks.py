"""The networks of machines on AWS, through the unmodified boto3: made, corrected, removed to the last part, by
`tradewind up --cloud aws` and `tradewind down --cloud aws`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.config import load_config
from orchestrator.errors import ProviderFailure, UsageError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.control_plane import networks as service
from orchestrator.services.doctor import state
from providers.aws.session import Connections
from providers.clock import VirtualClock
from providers.errors import QuotaError, RegionDisabledError, SetupError, UnavailableError
from tests.clouds.aws import error
from tests.clouds.ec2 import PARAMETER
from tests.clouds.ec2_account import NAMES, Account, opened, spec
from tests.clouds.server import LoopbackServer, Request, Response

CHANGES = ("Create", "Delete", "Attach", "Detach", "Replace", "Authorize", "Revoke")
REGIONS = ("us-east-1", "eu-west-1")


def quiet(_: str) -> None:
    return None


@pytest.fixture
def bare(ec2_clients: tuple[LoopbackServer, Connections]) -> Account:
    """An account without networks."""
    return opened(*ec2_clients, None)


def changes(account: Account) -> list[str]:
    """The calls that were to change something."""
    actions = [request.form.get("Action", "") for request in account.server.requests]
    return [each for each in actions if each.startswith(CHANGES)]


def left(account: Account) -> list[str]:
    return [part for region in REGIONS for part in account.ec2.networks.parts(region)]


def test_networks_are_made_once_and_removed_to_the_last_part(bare: Account) -> None:
    said: list[str] = []
    bare.connect().set_up("tw-1", said.append)
    found = bare.connect().networks("tw-1")
    assert [(each.region, each.ready) for each in found] == [(region, True) for region in REGIONS]
    assert [part.kind for part in found[0].parts] == ["firewall", "subnet", "subnet", "internet gateway", "network"]
    assert sorted(part.id for each in found for part in each.parts) == sorted(left(bare))
    assert any("us-east-1: network vpc-" in line for line in said)
    before = len(changes(bare))
    bare.connect().set_up("tw-1", said.append)
    assert len(changes(bare)) == before
    bare.connect().tear_down("tw-1", said.append)
    assert left(bare) == []
    bare.connect().tear_down("tw-1", said.append)
    assert not any(each.parts for each in bare.connect().networks("tw-1"))


def test_a_machine_is_let_nothing_in_reaches_others_of_its_installation_and_the_internet(bare: Account) -> None:
    provider = bare.connect()
    provider.set_up("tw-1", quiet)
    provider.launch(spec())
    ec2 = bare.connections.client("ec2", "us-east-1")
    form = bare.launches()[0].form
    assert form["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    (group,) = ec2.describe_security_groups(GroupIds=[form["NetworkInterface.1.SecurityGroupId.1"]])["SecurityGroups"]
    (rule,) = group["IpPermissions"]
    assert [each["GroupId"] for each in rule["UserIdGroupPairs"]] == [group["GroupId"]]
    assert not rule["IpRanges"]
    tables = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [group["VpcId"]]}])["RouteTables"]
    assert [row["GatewayId"][:4] for row in tables[0]["Routes"] if row["DestinationCidrBlock"] == "0.0.0.0/0"] == [
        "igw-"
    ]


@pytest.mark.parametrize(
    "how", [{"lost": True}, {"answer": error("InternalError", "no", 500)}], ids=["lost", "refused"]
)
def test_setting_up_and_taking_down_go_on_after_a_death_at_any_call(bare: Account, how: dict[str, Any]) -> None:
    """Each call fails once, with and without its effect. What a lost answer doubled is removed, too."""
    bare.prices.regions["eu-west-1"].opt_in = "not-opted-in"
    for do in ("set_up", "tear_down"):
        for number in range(30):
            bare.server.faults.clear()
            bare.connect(regions=REGIONS[:1]).tear_down("tw-1", quiet)
            if do == "tear_down":
                bare.connect(regions=REGIONS[:1]).set_up("tw-1", quiet)
            bare.fails_at(number, CHANGES, **how)
            try:
                getattr(bare.connect(regions=REGIONS[:1]), do)("tw-1", quiet)
                break
            except UnavailableError:
                getattr(bare.connect(regions=REGIONS[:1]), do)("tw-1", quiet)
            (found,) = bare.connect(regions=REGIONS[:1]).networks("tw-1")
            assert found.ready if do == "set_up" else not found.parts, (do, number)
            assert sorted(part.id for part in found.parts) == left(bare)
        assert number == (8 if do == "set_up" else 6)
    bare.connect(regions=REGIONS[:1]).tear_down("tw-1", quiet)
    assert left(bare) == []


def test_what_ec2_does_not_show_yet_is_not_made_twice(bare: Account) -> None:
    provider = bare.connect(regions=REGIONS[:1])
    bare.fails("CreateSubnet", answer=error("InvalidVpcID.NotFound", "The vpc ID 'vpc-1' does not exist", 400))
    with pytest.raises(UnavailableError, match="does not show yet"):
        provider.set_up("tw-1", quiet)
    nothing = '<DescribeVpcsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><vpcSet/></DescribeVpcsResponse>'
    bare.fails("DescribeVpcs", answer=Response(200, nothing.encode(), "text/xml"))
    provider.set_up("tw-1", quiet)
    assert changes(bare).count("CreateVpc") == 1
    assert bare.connect().networks("tw-1")[0].ready


def test_rules_that_somebody_added_and_parts_that_somebody_removed_are_seen_and_corrected(bare: Account) -> None:
    provider = bare.connect(regions=REGIONS[:1])
    provider.set_up("tw-1", quiet)
    ec2, parts = (
        bare.connections.client("ec2", "us-east-1"),
        {part.kind: part.id for part in provider.networks("tw-1")[0].parts},
    )
    everybody = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=parts["firewall"], IpPermissions=[everybody])
    ec2.detach_internet_gateway(InternetGatewayId=parts["internet gateway"], VpcId=parts["network"])
    ec2.delete_subnet(SubnetId=parts["subnet"])
    (found,) = bare.connect(regions=REGIONS[:1]).networks("tw-1")
    assert not found.ready
    assert found.missing[0] == "attachment of the internet gateway"
    assert "removal of the firewall rule for 0.0.0.0/0 port 22" in found.missing
    assert any(each.startswith("subnet in use1-az") for each in found.missing)
    bare.connect(regions=REGIONS[:1]).set_up("tw-1", quiet)
    assert bare.connect(regions=REGIONS[:1]).networks("tw-1")[0].ready


def test_installations_do_not_see_each_others_networks(bare: Account) -> None:
    provider = bare.connect()
    for install in ("tw-1", "tw-2"):
        provider.set_up(install, quiet)
    provider.tear_down("tw-2", quiet)
    assert all(each.ready for each in provider.networks("tw-1"))
    assert not any(each.parts for each in provider.networks("tw-2"))


def test_a_region_that_fails_keeps_no_other_from_being_set_up_or_taken_down(bare: Account) -> None:
    bare.fails("CreateVpc", answer=error("VpcLimitExceeded", "The maximum number of VPCs has been reached.", 400))
    with pytest.raises(QuotaError, match="VpcLimitExceeded") as raised:
        bare.connect().set_up("tw-1", quiet)
    assert "service-code vpc" in raised.value.hint
    assert [each.ready for each in bare.connect().networks("tw-1")] == [False, True]
    bare.connect().set_up("tw-1", quiet)
    bare.fails("DeleteSubnet", region="us-east-1", answer=error("InternalError", "no", 500))
    with pytest.raises(UnavailableError):
        bare.connect().tear_down("tw-1", quiet)
    assert not bare.ec2.networks.parts("eu-west-1")


def test_a_region_that_is_not_enabled_is_named(bare: Account) -> None:
    with pytest.raises(RegionDisabledError, match="ap-east-1") as raised:
        bare.connect(regions=("ap-east-1",)).set_up("tw-1", quiet)
    assert "enable-region" in raised.value.hint


def test_what_is_left_in_a_region_that_is_no_longer_configured_is_reported_and_removed(bare: Account) -> None:
    bare.connect().set_up("tw-1", quiet)
    here, there = bare.connect(regions=REGIONS[:1]).networks("tw-1")
    assert (here.ready, there.ready, there.wanted) == (True, False, False)
    bare.connect(regions=REGIONS[:1]).tear_down("tw-1", quiet)
    assert left(bare) == []


def test_nothing_that_a_machine_uses_is_removed(bare: Account) -> None:
    provider = bare.connect()
    provider.set_up("tw-1", quiet)
    (name,) = provider.launch(spec())
    with pytest.raises(UnavailableError, match="DependencyViolation"):
        provider.tear_down("tw-1", quiet)
    assert provider.networks("tw-1")[0].ready
    provider.terminate(name)
    provider.tear_down("tw-1", quiet)
    assert left(bare) == []


def test_without_a_network_nothing_is_launched_and_the_remedy_is_named(bare: Account) -> None:
    with pytest.raises(SetupError, match="there is no network in us-east-1") as raised:
        bare.connect().launch(spec())
    assert (raised.value.scope, raised.value.hint) == ("region", "create it: tradewind up --cloud aws")
    assert not bare.launches()


def test_a_network_that_is_deleted_under_a_running_job_is_a_named_error_until_it_is_made_again(bare: Account) -> None:
    provider = bare.connect()
    provider.set_up("tw-1", quiet)
    provider.launch(spec())
    parts = {part.kind: part.id for part in provider.networks("tw-1")[0].parts}
    bare.ec2.networks.cut("us-east-1", parts["network"])
    for match in ("InvalidSubnetID.NotFound", "there is no network in us-east-1"):  # once from memory, then looked up
        with pytest.raises(SetupError, match=match) as raised:
            provider.launch(spec(token="token-2"))
        assert "tradewind up --cloud aws" in raised.value.hint
    assert len(bare.ec2.instances) == 1
    bare.connect().set_up("tw-1", quiet)
    provider.launch(spec(token="token-2"))


# --- the commands ---

Run = Callable[..., Any]


@pytest.fixture
def installation(bare: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    settings = {
        "STATE_DIR": str(tmp_path / "state"),
        "PROVIDERS_ENABLED": "aws,fake",
        "PROVIDERS_AWS_REGIONS": ",".join(REGIONS),
        "PROVIDERS_AWS_INSTANCE_TYPES": ",".join(NAMES),
        "PROVIDERS_AWS_IMAGE": f"ssm:{PARAMETER}",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"TRADEWIND_{name}", value)
    opened = open_installation(load_config(cwd=tmp_path))
    opened.close()
    return opened


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--output", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_up_and_down_with_a_cloud(bare: Account, installation: Installation) -> None:
    made = run("up", "--cloud", "aws")
    assert made["schema"] == "tradewind/networks/v1"
    assert [(each["region"], each["missing"]) for each in made["networks"]] == [(region, []) for region in REGIONS]
    table = CliRunner().invoke(app, ["up", "--cloud", "aws"])
    assert "internet gateway igw-" in table.stdout
    gone = run("down", "--cloud", "aws")
    assert not any(each["parts"] for each in gone["networks"])
    assert left(bare) == []
    assert "no networks" in CliRunner().invoke(app, ["down", "--cloud", "aws"]).stdout


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("up", "--cloud", "gcp"), "not enabled"),
        (("up", "--cloud", "fake"), "needs no networks"),
        (("down", "--cloud", "aws", "--force"), "does not stop jobs"),
    ],
)
def test_what_up_and_down_cannot_do_is_named(
    installation: Installation, arguments: tuple[str, ...], match: str
) -> None:
    assert match in run(*arguments, code=2)["error"]["message"]


def test_down_names_the_machines_that_are_up_and_waits_for_those_that_are_ending(
    bare: Account, installation: Installation
) -> None:
    said: list[str] = []
    clock = VirtualClock()
    service.set_up(installation, ["aws"], quiet, clock=clock)
    provider, install = bare.connect(), installation.store.install_id
    (name,) = provider.launch(spec(tags={"tradewind-install": install}))
    with pytest.raises(UsageError, match=name):
        service.tear_down(installation, ["aws"], said.append, clock=clock)
    assert left(bare)
    bare.ec2.ending_s = 1e9
    provider.terminate(name)
    with pytest.raises(ProviderFailure, match=r"not finished after 600 s: 1 machine"):
        service.tear_down(installation, ["aws"], said.append, clock=clock)
    assert "waiting: 1 machine is still ending on aws" in said
    bare.ec2.ending_s = 0
    service.tear_down(installation, ["aws"], said.append, clock=clock)
    assert left(bare) == []


def test_throttled_calls_are_repeated_up_to_the_listing_at_the_end(bare: Account, installation: Installation) -> None:
    said: list[str] = []
    mine = replace(installation, providers={"aws": bare.connect()})
    busy = error("RequestLimitExceeded", "Request limit exceeded.", 503)
    bare.fails("CreateVpc", answer=busy)
    made = service.set_up(mine, ["aws"], said.append, clock=VirtualClock())
    assert all(network.ready for network in made.networks)
    before = len(bare.server.asked("Action=DescribeVpcs"))

    def listing_at_the_end(request: Request) -> bool:
        asked = len(bare.server.asked("Action=DescribeVpcs")) - before
        return b"Action=DescribeVpcs&" in request.body and asked > len(REGIONS)

    bare.fails_where(listing_at_the_end, 1, answer=busy)
    assert service.set_up(mine, ["aws"], said.append, clock=VirtualClock()) == made
    assert [line for line in said if line.startswith("waiting")] == [
        f"waiting: {action}: RequestLimitExceeded: Request limit exceeded." for action in ("CreateVpc", "DescribeVpcs")
    ]


def test_doctor_says_what_is_there_and_what_makes_the_rest(bare: Account, installation: Installation) -> None:
    cloud, install = bare.connect(), installation.store.install_id
    (here, _) = state.networks(installation, cloud, "aws")
    assert (here.state, here.found) == ("fail", "it does not exist")
    assert "tradewind up --cloud aws" in here.fix
    cloud.set_up(install, quiet)
    assert [each.state for each in state.networks(installation, cloud, "aws")] == ["ok", "ok"]
    (_, there) = state.networks(installation, bare.connect(regions=REGIONS[:1]), "aws")
    assert (there.name, there.state) == ("network of aws in eu-west-1", "warn")
    assert "tradewind down --cloud aws" in there.fix


def test_errors_of_the_cloud_are_reported_with_their_remedy(bare: Account, installation: Installation) -> None:
    bare.ec2.denied = {"CreateVpc"}
    reported = run("up", "--cloud", "aws", code=5)["error"]
    assert "CreateVpc: UnauthorizedOperation" in reported["message"]
    assert "ec2:CreateVpc" in reported["hint"]
