"""The bucket of an installation on S3, through the unmodified boto3: made with its rules, corrected, kept, removed,
interrupted at each call, with exactly the rights of the printed policy."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import pytest

from providers.aws.calls import CALLS, policy
from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.aws.settings import Settings
from providers.bucket import Bucket
from providers.clock import VirtualClock
from providers.errors import ProviderError, RegionDisabledError, SetupError, UnavailableError
from providers.policy import Store, Use, permissions
from tests.clouds import s3
from tests.clouds.iam import Enforced, User
from tests.clouds.s3 import refusal
from tests.clouds.server import Fault, LoopbackServer, Response

REGION = "eu-west-1"
NEEDED = permissions(CALLS, Use.BUCKET)
CHANGES = ("PUT", "DELETE", "POST")


@dataclass
class Account:
    """A provider, its S3 server, and the client of another user of the bucket `name`."""

    server: LoopbackServer
    s3: s3.S3
    connections: Connections
    name: str = field(default_factory=lambda: f"tw-{secrets.token_hex(6)}")

    def connect(self) -> AwsProvider:
        return AwsProvider(Settings((REGION,), ("m7i.large",), "ami-1", 100), VirtualClock(), self.connections)

    @property
    def theirs(self) -> Any:
        return self.connections.client("s3", REGION)

    def make(self, region: str = REGION) -> list[str]:
        said: list[str] = []
        self.connect().make_bucket("tw-1", self.name, region, said.append)
        return said

    def remove(self) -> list[str]:
        said: list[str] = []
        self.connect().remove_bucket("tw-1", self.name, said.append)
        return said

    def found(self) -> Bucket | None:
        return self.connect().bucket("tw-1", self.name)

    def changes(self) -> int:
        return sum(each.method in CHANGES for each in self.server.requests)


@pytest.fixture(scope="module")
def connections(server: LoopbackServer, environment: pytest.MonkeyPatch) -> Connections:
    lead_to(server, environment)
    return Connections(read_s=5, attempts=1)


def lead_to(server: LoopbackServer, patch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment(server).items():
        patch.setenv(name, value)


@pytest.fixture
def account(server: LoopbackServer, connections: Connections) -> Account:
    cloud = s3.S3()
    server.serve(cloud)
    return Account(server, cloud, connections)


def test_a_bucket_is_made_with_its_tag_in_the_same_call_and_then_gets_its_rules(account: Account) -> None:
    assert account.found() is None
    said = account.make()
    assert said[0] == f"bucket s3://{account.name} was made in {REGION}"
    assert b"<Key>tradewind-install</Key><Value>tw-1</Value>" in account.server.requests[2].body
    assert account.found() == Bucket("aws", f"s3://{account.name}", REGION, True)
    private = account.theirs.get_public_access_block(Bucket=account.name)["PublicAccessBlockConfiguration"]
    assert all(private.values())
    assert len(private) == 4
    (rule,) = account.theirs.get_bucket_lifecycle_configuration(Bucket=account.name)["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}
    assert "Status" not in account.theirs.get_bucket_versioning(Bucket=account.name)
    before = account.changes()
    assert account.make() == []
    assert account.changes() == before
    assert account.remove() == [f"bucket s3://{account.name} was removed"]
    assert account.remove() == []
    assert account.found() is None


def test_the_default_region_is_not_named(account: Account) -> None:
    account.make("us-east-1")
    found = account.found()
    assert found is not None
    assert found.region == "us-east-1"
    assert not account.server.asked("LocationConstraint")


def test_the_region_of_a_bucket_of_the_first_years_has_its_present_name(account: Account) -> None:
    account.make()
    answer = Response(200, b"<LocationConstraint>EU</LocationConstraint>", "application/xml")
    account.server.faults.append(Fault(lambda request: "location" in request.query, 1, answer=answer))
    found = account.found()
    assert found is not None
    assert found.region == "eu-west-1"


def test_the_rules_of_our_bucket_are_corrected_and_others_of_it_stay(account: Account) -> None:
    account.make()
    theirs = {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 90}}
    client, name = account.theirs, account.name
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [theirs]})
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    client.delete_public_access_block(Bucket=name)
    found = account.found()
    assert found is not None
    assert len(found.missing) == 3
    assert len(account.make()) == 3
    assert account.found() == Bucket("aws", f"s3://{name}", REGION, True)
    rules = client.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert [rule["ID"] for rule in rules] == ["logs", "tradewind: abort unfinished uploads"]


@pytest.mark.parametrize("tags", [[], [{"Key": "tradewind-install", "Value": "tw-2"}]])
def test_a_bucket_that_is_not_ours_is_used_as_it_is_and_never_removed(
    account: Account, tags: list[dict[str, str]]
) -> None:
    place = {"LocationConstraint": REGION, **({"Tags": tags} if tags else {})}
    account.theirs.create_bucket(Bucket=account.name, CreateBucketConfiguration=place)
    before = account.changes()
    assert account.make() == []
    assert account.found() == Bucket("aws", f"s3://{account.name}", REGION, False)
    (line,) = account.remove()
    assert "is kept: Tradewind did not make it" in line
    assert line.endswith(f"aws s3 rb --force s3://{account.name}")
    assert account.changes() == before


def test_a_bucket_that_holds_something_is_kept_and_the_line_says_what(account: Account) -> None:
    account.make()
    account.theirs.put_object(Bucket=account.name, Key="checkpoints/1", Body=b"x" * 250_000)
    (line,) = account.remove()
    assert f"s3://{account.name} is kept: it holds 1 object, 0.2 MB; " in line
    assert line.endswith(f"aws s3 rb --force s3://{account.name}")
    assert account.found() is not None


def test_what_is_written_while_it_is_removed_stays(account: Account) -> None:
    account.make()
    late = refusal(409, "BucketNotEmpty")
    account.server.faults.append(Fault(lambda request: request.method == "DELETE", 1, answer=late))
    (line,) = account.remove()
    assert "is kept" in line
    assert account.found() is not None


def test_a_name_that_another_account_has_is_a_named_error(account: Account) -> None:
    account.s3.others.add(account.name)
    with pytest.raises(SetupError, match=f"the name {account.name} belongs to another account") as raised:
        account.make()
    assert "choose another name: store_root" in raised.value.hint
    hidden = refusal(404, "NoSuchBucket")  # it was made by another account between two calls
    account.server.faults.append(Fault(lambda request: "tagging" in request.query, 1, answer=hidden))
    with pytest.raises(SetupError, match="belongs to another account"):
        account.make()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InvalidAccessKeyId", RegionDisabledError),  # which S3 says of keys that were accepted elsewhere
        ("InvalidToken", RegionDisabledError),
        ("IllegalLocationConstraintException", SetupError),
        ("InvalidLocationConstraint", SetupError),
    ],
)
def test_a_region_that_the_account_may_not_use_is_named(account: Account, code: str, kind: type[ProviderError]) -> None:
    account.server.faults.append(Fault(lambda request: request.method == "PUT", 1, answer=refusal(403, code)))
    with pytest.raises(kind, match=code) as raised:
        account.make()
    assert raised.value.hint


@pytest.mark.parametrize("verb", ["make", "remove"])
@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize(
    "how", [{"lost": True}, {"answer": refusal(503, "ServiceUnavailable")}], ids=["lost", "refused"]
)
def test_making_and_removing_go_on_after_a_death_at_any_call(
    account: Account, verb: str, at: int, how: dict[str, Any]
) -> None:
    if verb == "remove":
        account.make()
    calls = iter(range(1000))
    account.server.faults.append(Fault(lambda _: next(calls) == at, 1, **how))
    for _ in range(2):
        try:
            getattr(account, verb)()
        except UnavailableError:
            continue
    account.server.faults.clear()
    assert account.found() == (None if verb == "remove" else Bucket("aws", f"s3://{account.name}", REGION, True))


# --- with IAM in force ---


def granted(name: str, *without: str) -> dict[str, Any]:
    document = json.loads(policy([Use.BUCKET], Store(name, "tradewind")).text)
    for statement in document["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each not in without]
    return dict(document)


@pytest.fixture(scope="module")
def user(server: LoopbackServer) -> tuple[User, Connections]:
    made = User(granted("none"))
    with pytest.MonkeyPatch.context() as patch:
        lead_to(server, patch)
        for name, value in made.environment.items():
            patch.setenv(name, value)
        clients = Connections(read_s=5, attempts=1)
        clients.client("sts", "us-east-1")  # boto3 reads the environment now
    return made, clients


def everything(account: Account, clients: Connections) -> list[ProviderError]:
    """All that is done to a bucket, and the errors."""
    errors: list[ProviderError] = []
    ours, account.connections = account.connections, clients
    for step in ("found", "make", "spoil", "make", "found", "remove"):
        try:
            if step == "spoil":
                spoiled = {"Bucket": account.name, "VersioningConfiguration": {"Status": "Enabled"}}
                ours.client("s3", REGION).put_bucket_versioning(**spoiled)
            else:
                getattr(account, step)()
        except ProviderError as error:
            errors.append(error)
        except Exception:
            assert step == "spoil", "the bucket does not exist"
    account.connections = ours
    return errors


@pytest.mark.parametrize("missing", [None, *NEEDED])
def test_the_printed_policy_is_enough_and_no_permission_is_superfluous(
    account: Account, user: tuple[User, Connections], missing: str | None
) -> None:
    who, clients = user
    who.allow(granted(account.name, *([missing] if missing else [])))
    who.demanded = []
    guarded = Enforced(account.s3, who)
    account.server.cloud = lambda request: (
        guarded(request)
        if who.environment["AWS_ACCESS_KEY_ID"] in request.headers["Authorization"]
        else account.s3(request)
    )
    errors = everything(account, clients)
    assert {getattr(error, "action", "") for error in errors} == ({missing} if missing else set())
    if missing is None:
        assert set(who.demanded) == set(NEEDED)
        assert account.found() is None


def test_the_whole_policy_fits_into_a_managed_policy() -> None:
    """IAM takes 6,144 characters there, without white space; 2,048 in a policy of a user alone."""
    whole = policy(list(Use), Store("b" * 63, "a/long/prefix/of/the/store", "arn:aws:iam::123456789012:role/machines"))
    assert len("".join(whole.text.split())) < 6144
    assert "create-policy" in whole.apply
