"""The fault matrix of AWS: each call of the provider, each class of error, and each way to lose an answer.

Every cell asserts the error's class and scope, that a refusal changed nothing, that the same call works afterwards, and
that there is still exactly the machine, or the network, that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from providers.aws.codes import CODES, NO_INSTANCE, USED_TOKEN
from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.errors import (
    AuthError,
    CutOffError,
    ProviderError,
    RegionDisabledError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from tests.clouds.aws import error
from tests.clouds.ec2_account import HOUR_S, Account, opened, spec
from tests.clouds.ec2_networks import Networks
from tests.clouds.server import Fault, LoopbackServer, Response

READ_S = 0.3


def quiet(_: str) -> None:
    return None


@dataclass(frozen=True)
class Call:
    """A call of the provider and the one of EC2 that fails in it. `changes`: its effect may come without an answer.
    `absent`: a machine that EC2 does not know is no error of it."""

    action: str
    make: Callable[[AwsProvider, str], object]
    changes: bool = False
    absent: bool = False


CALLS = {
    "launch": Call("RunInstances", lambda provider, _: provider.launch(spec()), changes=True),
    "image of a launch": Call("DescribeImages", lambda provider, _: provider.launch(spec())),
    "network of a launch": Call("DescribeSubnets", lambda provider, _: provider.launch(spec())),
    "describe": Call("DescribeInstances", lambda provider, name: provider.describe([name])),
    "notices": Call("DescribeSpotInstanceRequests", lambda provider, name: provider.describe([name])),
    "find": Call("DescribeInstances", lambda provider, _: provider.find("token-1", "us-east-1")),
    "renew": Call("CreateTags", lambda provider, name: provider.renew([name], HOUR_S), changes=True, absent=True),
    "terminate": Call("TerminateInstances", lambda provider, name: provider.terminate(name), changes=True, absent=True),
    "list_owned": Call("DescribeInstances", lambda provider, _: provider.list_owned("tw-1")),
    "prices": Call("DescribeSpotPriceHistory", lambda provider, _: provider.prices()),
    "quotas": Call("DescribeInstances", lambda provider, _: provider.quotas()),
    "set_up": Call("CreateVpc", lambda provider, _: provider.set_up("tw-2", quiet), changes=True),
    "tear_down": Call("DeleteSubnet", lambda provider, _: provider.tear_down("tw-2", quiet), changes=True),
}
ONE_OF_EACH: dict[str, str] = {}
for _code, _meaning in CODES.items():
    ONE_OF_EACH.setdefault(f"{_meaning.kind.__name__}-{_meaning.scope}", _code)
CODES_SENT = sorted({*ONE_OF_EACH.values(), *USED_TOKEN[:1], *NO_INSTANCE[:1]})
OTHER_ANSWERS: dict[str, tuple[Response, type[ProviderError]]] = {
    "unknown code": (error("SomethingNew", "said AWS", 400), ProviderError),
    "fault without a code": (Response(500, b"<html>oops</html>", "text/html"), UnavailableError),
    "busy with an unknown code": (error("Busy", "said AWS", 429), ThrottledError),
    "no sense": (Response(200, b"<html>", "text/xml"), CutOffError),
}
LOST: dict[str, tuple[dict[str, Any], type[ProviderError]]] = {
    "closed": ({"lost": True}, CutOffError),
    "half": ({"cut": True}, CutOffError),
    "silent": ({"hang": True}, TimedOutError),
}


@pytest.fixture(scope="module")
def hurried(ec2_clients: tuple[LoopbackServer, Connections]) -> Connections:
    """Clients that wait READ_S for an answer: for calls that get none."""
    return Connections(read_s=READ_S, attempts=1)


@pytest.fixture
def here(account: Account) -> Account:
    account.ec2.quota = {"All G and VT Spot Instance Requests": 64}
    return account


def begun(account: Account, name: str) -> tuple[AwsProvider, str]:
    """A new client, and the machine or the network that the call is about."""
    provider, machine = account.connect(regions=("us-east-1",)), ""
    if "launch" not in name:
        (machine,) = provider.launch(spec())
    if name == "tear_down":
        provider.set_up("tw-2", quiet)
    account.server.requests.clear()
    return account.connect(regions=("us-east-1",)), machine


def state(account: Account) -> tuple[object, ...]:
    """All that an account has."""
    machines = [(each.id, each.ended_at, each.tags) for each in account.ec2.instances.values()]
    return machines, account.ec2.networks.parts("us-east-1")


def afterwards(account: Account, name: str, provider: AwsProvider, machine: str) -> None:
    """The same call works, also from another process; there is one machine or it has ended, and the effect is there
    once."""
    account.server.faults.clear()
    CALLS[name].make(provider, machine)
    if CALLS[name].changes:
        CALLS[name].make(account.connect(regions=("us-east-1",)), machine)
    (made,) = account.ec2.instances.values()
    assert made.row["ClientToken"] == "token-1"
    assert len(account.ec2.alive()) == (name != "terminate")
    if name == "renew":
        assert made.tags["tradewind-lives"].startswith(f"{HOUR_S} from ")


def network_afterwards(account: Account, name: str, provider: AwsProvider) -> None:
    """Like `afterwards`; then nothing of it is left."""
    account.server.faults.clear()
    before = account.ec2.networks.parts("us-east-1")
    CALLS[name].make(provider, "")
    if name == "set_up":
        made = account.ec2.networks.parts("us-east-1")
        CALLS[name].make(account.connect(regions=("us-east-1",)), "")
        assert account.ec2.networks.parts("us-east-1") == made
        assert set(made) > set(before)
        provider.tear_down("tw-2", quiet)
    own = account.connect(regions=("us-east-1",)).networks("tw-1")[0]
    assert own.ready
    assert sorted(part.id for part in own.parts) == account.ec2.networks.parts("us-east-1")


def works(account: Account, name: str, provider: AwsProvider, machine: str) -> None:
    if name in ("set_up", "tear_down"):
        network_afterwards(account, name, provider)
    else:
        afterwards(account, name, provider, machine)


def expected(name: str, code: str) -> type[ProviderError] | None:
    """What a refusal with this code becomes; None: no error."""
    kind = CODES[code].kind
    if name == "launch" and code in USED_TOKEN:
        return UnavailableError  # what that token launched is not shown
    if CALLS[name].absent and code in NO_INSTANCE:
        return None
    return RegionDisabledError if kind is AuthError else kind


@pytest.mark.parametrize("name", CALLS)
def test_each_refusal_has_its_class_and_scope_and_changes_nothing(here: Account, name: str) -> None:
    """One provider meets them all, and works afterwards."""
    call = CALLS[name]
    provider, machine = begun(here, name)
    if name == "tear_down":  # it has removed what comes before a subnet
        here.fails(call.action, answer=error("InternalError", "said AWS", 500))
        with pytest.raises(UnavailableError):
            call.make(provider, machine)
    before = state(here)
    refusals = [(error(code, "said AWS", 400), expected(name, code), code) for code in CODES_SENT]
    refusals += [(answer, kind, what) for what, (answer, kind) in OTHER_ANSWERS.items()]
    for answer, kind, what in refusals:
        here.server.requests.clear()
        here.fails(call.action, times=1 if kind is None else None, answer=answer)
        if kind is not None:
            with pytest.raises(ProviderError) as raised:
                call.make(provider, machine)
            assert type(raised.value) is kind, (what, raised.value)
            assert raised.value.retryable == issubclass(kind, ThrottledError | UnavailableError), what
            if what in CODES and kind is CODES[what].kind:
                assert raised.value.scope == CODES[what].scope, what
            assert len(here.server.asked(f"Action={call.action}&")) <= len(here.prices.regions), what
            assert state(here) == before, what
        else:
            call.make(provider, machine)
            before = state(here)
        here.server.faults.clear()
        if not call.changes and "launch" not in name:
            call.make(provider, machine)
    works(here, name, provider, machine)


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("name", CALLS)
def test_an_answer_that_is_lost_doubles_and_leaks_nothing(
    here: Account, hurried: Connections, name: str, how: str
) -> None:
    """Closed and cut connections come after the effect; silence without it."""
    provider, machine = begun(here, name)
    fault, kind = LOST[how]
    if how == "silent":
        provider = AwsProvider(provider._settings, here.clock, hurried)
    here.fails(CALLS[name].action, times=None, **fault)
    with pytest.raises(kind) as raised:
        CALLS[name].make(provider, machine)
    assert raised.value.retryable
    works(here, name, here.connect(regions=("us-east-1",)), machine)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.changes])
def test_an_effect_that_comes_after_the_error_doubles_and_leaks_nothing(here: Account, name: str) -> None:
    """EC2 says InternalError, and does it all the same: before the next call and once more after it."""
    provider, machine = begun(here, name)
    action = f"Action={CALLS[name].action}&".encode()
    failed = error("InternalError", "said AWS", 500)
    late = here.server.postpones(lambda request: action in request.body, failed)
    with pytest.raises(UnavailableError):
        CALLS[name].make(provider, machine)
    here.server.cloud(late[0])
    works(here, name, here.connect(regions=("us-east-1",)), machine)
    if name != "set_up":  # a repeated CreateVpc is another network: tear_down removes that, too
        here.server.cloud(late[0])
        works(here, name, here.connect(regions=("us-east-1",)), machine)


def test_boto3_repeats_no_call_that_would_make_something_twice(
    ec2_clients: tuple[LoopbackServer, Connections],
) -> None:
    """On the wire there is one such call per try of ours, whatever boto3 would repeat by itself, and it repeats those
    that only ask."""
    account = opened(ec2_clients[0], Connections(attempts=3), Networks())
    failures: list[dict[str, Any]] = [
        {"answer": error("InternalError", "said AWS", 500)},
        {"answer": error("RequestLimitExceeded", "said AWS", 503)},
        {"answer": error("InsufficientInstanceCapacity", "said AWS", 500)},
        {"cut": True},
    ]

    def tried(action: str, how: dict[str, Any]) -> None:
        provider = account.connect(regions=("us-east-1",))
        account.server.requests.clear()
        account.fails(action, times=None, **how)
        with pytest.raises(ProviderError):
            provider.launch(spec()) if action == "RunInstances" else provider.set_up("tw-1", quiet)
        assert len(account.server.asked(f"Action={action}&")) == 1, (action, how)
        account.server.faults.clear()

    for action in ("CreateVpc", "CreateInternetGateway", "CreateSecurityGroup", "CreateSubnet"):
        tried(action, failures[0])
    account.connect(regions=("us-east-1",)).set_up("tw-1", quiet)
    for how in failures:
        tried("RunInstances", how)
    account.fails("DescribeImages", answer=error("InternalError", "said AWS", 500))
    account.connect(regions=("us-east-1",)).launch(spec())
    assert len(account.server.asked("Action=DescribeImages&")) == 1 + 2  # the last of the tries asked, too
    assert len(account.ec2.alive()) == 1  # of the try whose answer was cut


ERROR = b"<Response><Errors><Error><Code>InternalError</Code><Message>no</Message></Error></Errors></Response>"
SUCCESSES = {
    "empty": b"<Response/>",
    "a row without its facts": (
        b'<R xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instancesSet><item><instanceId>i-1</instanceId></item>'
        b"</instancesSet><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet>"
        b"</item></reservationSet></R>"
    ),
}


@pytest.mark.parametrize("what", sorted(SUCCESSES))
@pytest.mark.parametrize("name", ["launch", "describe", "find", "list_owned"])
def test_a_success_whose_body_is_none_may_have_taken_effect_and_is_no_fault_of_ours(
    here: Account, name: str, what: str
) -> None:
    provider, machine = begun(here, name)
    here.fails(CALLS[name].action, times=None, answer=Response(200, SUCCESSES[what], "text/xml"))
    with pytest.raises(UnavailableError, match="the aws provider failed: KeyError"):
        CALLS[name].make(provider, machine)
    afterwards(here, name, provider, machine)


@pytest.mark.parametrize("name", CALLS)
def test_an_error_with_the_status_of_a_success_is_an_error_and_the_call_may_have_taken_effect(
    here: Account, name: str
) -> None:
    provider, machine = begun(here, name)
    here.fails(CALLS[name].action, times=None, answer=Response(200, ERROR, "text/xml"))
    with pytest.raises(UnavailableError, match="AWS answered 200 with an error: InternalError: no"):
        CALLS[name].make(provider, machine)
    works(here, name, provider, machine)


def test_an_error_with_the_status_of_a_success_is_no_list_of_quotas(here: Account) -> None:
    provider, _ = begun(here, "quotas")
    body = b'{"__type": "AccessDeniedException", "Message": "no"}'
    fault = Fault(
        lambda request: "ServiceQuotas" in request.headers.get("X-Amz-Target", ""), 1, answer=Response(200, body)
    )
    here.server.faults.append(fault)
    with pytest.raises(UnavailableError, match="AWS answered 200 with an error: AccessDeniedException: no"):
        provider.quotas()
    assert provider.quotas()
