"""The IAM policy that `tradewind doctor --policy aws` prints is enough and not too much, with IAM in force."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.config import SETTINGS as SETTINGS_OF
from providers.aws.calls import CALLS, policy
from providers.aws.permissions import access
from providers.aws.prices.risk import Interruptions
from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.aws.settings import Settings
from providers.base import LaunchSpec
from providers.clock import VirtualClock
from providers.collect.permissions import Access
from providers.errors import AuthError, NotTogetherError, PermissionDeniedError, ProviderError
from providers.policy import Store, Use, permissions
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change
from tests.clouds.ec2 import IMAGE, PARAMETER, Ec2
from tests.clouds.iam import Enforced, User
from tests.clouds.server import LoopbackServer
from tests.clouds.still import Still

NOW_MS = 1_790_000_000_000
OFFER = "aws/us-east-1/use1-az1/g5.xlarge/spot"
SETTINGS = Settings(("us-east-1",), ("g5.xlarge",), f"ssm:{PARAMETER}", 100)
USES = (Use.PRICES, Use.MACHINES, Use.NETWORKS)
NEEDED = permissions(CALLS, *USES)
OF_FLEETS = ("ec2:CreateLaunchTemplate", "ec2:DescribeLaunchTemplates", "ec2:CreateFleet")
TAGS = {"tradewind-install": "tw-1"}


@dataclass
class Account:
    """One user of an account, clients with that user's own key, and the cloud behind them."""

    server: LoopbackServer
    ec2: Ec2
    user: User
    connections: Connections

    def login(self, **changed: str) -> Connections:
        """These clients, or new ones with other values in the environment."""
        if not changed:
            return self.connections
        with pytest.MonkeyPatch.context() as patch:
            for name, value in changed.items():
                patch.setenv(name, value)
            made = Connections(read_s=5, attempts=1)
            made.client("sts", "us-east-1")  # boto3 reads the environment now
        return made

    def provider(self) -> AwsProvider:
        return AwsProvider(SETTINGS, self.ec2.present.clock, self.login())

    def checks(self, **changed: str) -> dict[str, Access]:
        return {each.what: each for each in access(self.login(**changed), SETTINGS)}


@pytest.fixture(scope="module")
def logged_in(server: LoopbackServer, environment: pytest.MonkeyPatch) -> tuple[User, Connections]:
    user = User(granted())
    fixed = {"AWS_ENDPOINT_URL": server.url, "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {**fixed, **user.environment}.items():
        environment.setenv(name, value)
    return user, Connections(read_s=5, attempts=1)


@pytest.fixture
def account(server: LoopbackServer, logged_in: tuple[User, Connections]) -> Account:
    clock, (user, connections) = VirtualClock(start_ms=NOW_MS), logged_in
    changes = [Change("g5.xlarge", zone, NOW_MS - 10**7, "0.4") for zone in range(2)]
    offered = {("g5.xlarge", zone) for zone in range(2)}
    here = AwsRegion(["use1-az1", "use1-az2"], changes, offered, {"g5.xlarge": "1.0"})
    prices = AwsCloud({"us-east-1": here}, {"g5.xlarge": AwsType("g5.xlarge", "A10G", 1, 24576, 4, 16384)})
    prices.advisor = {"spot_advisor": {}}
    prices.forward = ec2 = Ec2(clock, prices, lambda _, user_data: Still(user_data))
    user.allow(granted())
    user.expired, user.has_spot_role, user.has_fleet_role, user.demanded = False, False, False, []
    server.serve(Enforced(prices, user, ec2.tags_of))
    return Account(server, ec2, user, connections)


def granted(*without: str) -> Mapping[str, Any]:
    document = json.loads(policy(USES).text)
    for statement in document["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each not in without]
    return {**document, "Statement": [each for each in document["Statement"] if each["Action"]]}


def with_networks(account: Account) -> AwsProvider:
    provider = account.provider()
    provider.set_up("tw-1", lambda _: None)
    return provider


def everything(account: Account) -> list[ProviderError]:
    """Each call of the provider and of the price sources once, and the errors. A machine that cannot be ended would
    stay; so do its errors."""
    provider, errors, ids = account.provider(), [], [""]

    def launch() -> None:
        ids[:] = provider.launch(LaunchSpec("token-1", OFFER, "sleep 1\n", TAGS, time_to_live_s=60))

    def launch_anywhere() -> None:
        also = (OFFER.replace("az1", "az2"),)
        spec = LaunchSpec("token-2", OFFER, "sleep 1\n", TAGS, time_to_live_s=60, also=also)
        try:
            ids.extend(provider.launch_any(spec).instance_ids)
        except NotTogetherError:
            assert provider.most_offers(1) == 1
            ids.extend(provider.launch(replace(spec, token="token-3", also=())))

    def terminate() -> None:
        for each in ids:
            provider.terminate(each)

    def networks() -> None:
        account.provider().set_up("tw-1", lambda _: None)
        account.ec2.networks.spoil("us-east-1")
        account.provider().set_up("tw-1", lambda _: None)

    def scores() -> None:
        url = f"{account.server.url}/spot-advisor-data.json"
        source = Interruptions(url=url, scores=[["a", "b", "c"]], connections=account.login())
        if error := source.poll("global", NOW_MS, None).error:
            raise error

    for call in (
        provider.prices,
        scores,
        networks,
        launch,
        launch_anywhere,
        lambda: provider.describe(ids),
        lambda: provider.find("token-1", "us-east-1"),
        lambda: provider.find("token-2", "us-east-1"),
        lambda: provider.renew(ids, 60),
        lambda: provider.list_owned("tw-1"),
        provider.quotas,
        terminate,
        lambda: provider.tear_down("tw-1", lambda _: None),
    ):
        try:
            call()
        except ProviderError as error:
            errors.append(error)
    return errors


def test_the_policy_is_enough(account: Account) -> None:
    assert everything(account) == []
    assert not account.ec2.alive()


def test_nothing_in_the_policy_is_never_asked_for(account: Account) -> None:
    everything(account)
    assert set(account.user.demanded) == set(NEEDED)


@pytest.mark.parametrize("action", OF_FLEETS)
def test_without_the_actions_of_fleets_a_launch_asks_for_its_first_zone(account: Account, action: str) -> None:
    """The policy that an earlier version printed still does."""
    account.user.allow(granted(action))
    assert everything(account) == []
    assert len(account.ec2.instances) == 2
    assert not account.ec2.alive()


def test_a_role_for_fleets_that_may_not_be_made_is_done_without(account: Account) -> None:
    document = granted()
    for statement in document["Statement"]:
        if "iam:CreateServiceLinkedRole" in statement["Action"]:
            statement["Condition"] = {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}
    account.user.allow(document)
    assert everything(account) == []
    assert len(account.ec2.instances) == 2


@pytest.mark.parametrize("action", [each for each in NEEDED if each not in OF_FLEETS])
def test_without_any_action_something_fails_and_the_error_names_it(account: Account, action: str) -> None:
    account.user.allow(granted(action))
    denied = [error for error in everything(account) if isinstance(error, PermissionDeniedError)]
    assert {error.action for error in denied} == {action}
    assert f'"{action}"' in denied[0].hint


def test_machines_of_others_are_out_of_reach(account: Account) -> None:
    (name,) = with_networks(account).launch(LaunchSpec("token-1", OFFER, "sleep 1\n", TAGS))
    (machine,) = account.ec2.alive()
    machine.row["Tags"] = [{"Key": "Name", "Value": "database"}]
    for call in (lambda: account.provider().terminate(name), lambda: account.provider().renew([name], 60)):
        with pytest.raises(PermissionDeniedError):
            call()
    assert account.ec2.alive() == [machine]


def test_networks_of_others_are_out_of_reach(account: Account) -> None:
    network = account.ec2.networks.others("us-east-1")
    with pytest.raises(ClientError, match="not authorized to perform: ec2:DeleteVpc"):
        account.connections.client("ec2", "us-east-1").delete_vpc(VpcId=network)


def test_a_policy_for_prices_allows_nothing_that_costs(account: Account) -> None:
    account.user.allow(json.loads(policy([Use.PRICES]).text))
    account.provider().prices()
    with pytest.raises(PermissionDeniedError, match="ssm:GetParameter"):
        account.provider().launch(LaunchSpec("token-1", OFFER, "", TAGS))
    with pytest.raises(PermissionDeniedError, match="ec2:TerminateInstances"):
        account.provider().terminate("aws-us-east-1-i-00000000000000000")


# --- doctor ---


def test_with_the_policy_every_check_passes(account: Account) -> None:
    assert [each for each in account.checks().values() if not each.works] == []
    assert not account.ec2.instances  # a dry run launches nothing
    with_networks(account).launch(LaunchSpec("token-1", OFFER, "sleep 1\n", TAGS))
    checks = account.checks()
    assert [each for each in checks.values() if not each.works] == []
    assert "renewed and terminated" in checks["end of machines in us-east-1"].detail


def test_doctor_compares_the_families_that_an_image_is_for_with_the_configured_types(account: Account) -> None:
    what = "driver of the image in us-east-1"
    assert account.checks()[what].detail.startswith("the image does not state its driver")
    account.ec2.described = "Supported EC2 instances: G4dn, G5, P6-B200. Release notes: https://example.org/"
    assert account.checks()[what].detail.startswith("the image is for G4dn, G5, P6-B200; the image does not state")
    account.ec2.described = "Supported EC2 instances: P4d, P5en. Release notes: https://example.org/"
    wrong = account.checks()[what]
    assert (wrong.works, wrong.needed) == (False, False)
    assert "for P4d, P5en, not for g5.xlarge" in wrong.detail
    assert "providers.aws.image" in wrong.remedy


def test_without_credentials_the_error_says_where_they_come_from(account: Account) -> None:
    (found,) = access(account.login(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""), SETTINGS)
    assert "no AWS credentials were found" in found.detail
    assert "aws configure" in found.remedy


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_a_wrong_key_is_distinguished_from_a_missing_permission(account: Account, name: str) -> None:
    (found,) = account.checks(**{name: "AKIAWRONGWRONGWRONG1"}).values()
    assert (found.what, found.works) == ("identity", False)
    assert "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in found.remedy
    login = account.login(**{name: "AKIAWRONGWRONGWRONG1"})
    with pytest.raises(AuthError):
        AwsProvider(SETTINGS, account.ec2.present.clock, login).list_owned("tw-1")


def test_an_expired_session_says_to_log_in_again(account: Account) -> None:
    account.user.expired = True
    (found,) = account.checks().values()
    assert "expired" in found.detail
    assert "aws sso login" in found.remedy


def test_read_only_credentials_lack_exactly_what_costs_or_changes(account: Account) -> None:
    reading = [each for each in NEEDED if each.partition(":")[2].startswith(("Describe", "Get"))]
    account.user.allow(granted(*(each for each in NEEDED if each not in reading)))
    missing = {each.what: each.remedy for each in account.checks().values() if not each.works}
    assert list(missing) == ["launch of machines in us-east-1"]
    assert '"Action": "ec2:RunInstances"' in missing["launch of machines in us-east-1"]
    assert "tradewind doctor --policy aws" in missing["launch of machines in us-east-1"]


@pytest.mark.parametrize(
    ("action", "check"),
    [
        ("ec2:CreateTags", "launch of machines in us-east-1"),
        ("iam:CreateServiceLinkedRole", "launch of machines in us-east-1"),
        ("ssm:GetParameter", "image in us-east-1"),
        ("ec2:DescribeSpotInstanceRequests", "list of machines in us-east-1"),
    ],
)
def test_what_is_missing_is_named_by_the_check_that_needs_it(account: Account, action: str, check: str) -> None:
    account.user.allow(granted(action))
    found = account.checks()[check]
    assert not found.works
    assert f'"Action": "{action}"' in found.remedy


def test_a_machine_that_may_not_be_ended_is_noticed_while_it_runs(account: Account) -> None:
    with_networks(account).launch(LaunchSpec("token-1", OFFER, "sleep 1\n", TAGS))
    account.user.allow(granted("ec2:TerminateInstances"))
    assert '"ec2:TerminateInstances"' in account.checks()["end of machines in us-east-1"].remedy


def test_init_with_an_account_says_what_a_first_job_would_cost(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("TERM", "dumb")
    image = SETTINGS_OF["providers.aws.image"].example.strip('"').removeprefix("ssm:")
    account.ec2.parameters[image] = IMAGE
    done = CliRunner().invoke(app, ["init", "--clouds", "aws", "--store", "s3://my-bucket/tw"])
    assert done.exit_code == 8, done.output  # there is no S3 here
    failed = [line.split("  ")[1].strip() for line in done.stdout.splitlines() if line.startswith("fail")]
    assert failed == ["store root", "network of aws in us-east-1"]  # before `tradewind up --cloud aws`
    assert f"on {OFFER}" in done.stdout
    assert re.search(r"on one A10G would cost about \$0\.[45]\d* ", done.stdout), done.stdout
    assert account.ec2.instances == {}


# --- the store ---


@pytest.mark.parametrize(
    ("role", "lends"), [(None, "sts:GetFederationToken"), ("arn:aws:iam::1:role/m", "sts:AssumeRole")]
)
def test_the_store_is_limited_to_its_folder(role: str | None, lends: str) -> None:
    statements = json.loads(policy([Use.STORE], Store("b", "tw", role)).text)["Statement"]
    assert statements[0]["Resource"] == "arn:aws:s3:::b/tw/*"
    assert statements[1] == {
        "Sid": "TradewindListsItsStore",
        "Effect": "Allow",
        "Action": ["s3:ListBucket", "s3:GetBucketVersioning", "s3:GetLifecycleConfiguration"],
        "Resource": "arn:aws:s3:::b",
    }
    assert statements[2]["Action"] == [lends]
    assert statements[2]["Resource"] == (role or "*")
