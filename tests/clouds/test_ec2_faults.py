"""The fault matrix of AWS: each call of the provider, each class of error, and each way to lose an answer.

Every cell asserts the error's class and scope, that the same call works afterwards, that there is still exactly the
machine that was asked for, and that nothing is left at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from tests.clouds.server import LoopbackServer, Request, Response

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
for code, meaning in CODES.items():
    ONE_OF_EACH.setdefault(f"{meaning.kind.__name__}-{meaning.scope}", code)
CODES_SENT = sorted({*ONE_OF_EACH.values(), USED_TOKEN[0], NO_INSTANCE[0]})


@pytest.fixture(scope="module")
def hurried(ec2_clients: tuple[LoopbackServer, Connections]) -> Connections:
    """Clients that wait READ_S for an answer: for calls that get none."""
    return Connections(read_s=READ_S, attempts=1)


@pytest.fixture
def cell(ec2_clients: tuple[LoopbackServer, Connections], ec2_networks: Networks) -> Iterator[Account]:
    """An account with networks; afterwards nothing may be left in it."""
    account = opened(*ec2_clients, ec2_networks)
    account.ec2.quota = {"All G and VT Spot Instance Requests": 64}
    if not ec2_networks.parts("us-east-1"):
        account.connect().set_up("tw-1", quiet)
    before = ec2_networks.parts("us-east-1")
    yield account
    account.server.faults.clear()
    provider = account.connect(regions=("us-east-1",))
    for each in provider.list_owned("tw-1"):
        provider.terminate(each.id)
    provider.tear_down("tw-2", quiet)
    assert not account.ec2.alive()
    assert ec2_networks.parts("us-east-1") == before


def begun(account: Account, name: str) -> tuple[AwsProvider, str]:
    """A new client, and the machine that the call is about, if it needs one."""
    provider, machine = account.connect(regions=("us-east-1",)), ""
    if "launch" not in name:
        (machine,) = provider.launch(spec())
    if name == "tear_down":
        provider.set_up("tw-2", quiet)
    account.server.requests.clear()
    return account.connect(regions=("us-east-1",)), machine


def afterwards(account: Account, name: str, provider: AwsProvider, machine: str) -> None:
    """The same call works, there is one machine or it has ended, and its effect is there once."""
    account.server.faults.clear()
    CALLS[name].make(provider, machine)
    CALLS[name].make(account.connect(regions=("us-east-1",)), machine)  # from another process
    made = [each for each in account.ec2.instances.values() if each.row["ClientToken"] == "token-1"]
    assert len(made) == 1
    assert len(account.ec2.alive()) == (name != "terminate")
    if name == "renew":
        assert made[0].tags["tradewind-lives"].startswith(f"{HOUR_S} from ")
    if name in ("set_up", "tear_down"):
        (found,) = [each for each in provider.networks("tw-2") if each.wanted]
        assert found.ready if name == "set_up" else not found.parts


def expected(name: str, code: str) -> type[ProviderError] | None:
    """What a refusal with this code becomes; None: no error."""
    kind = CODES[code].kind
    if name == "launch" and code in USED_TOKEN:
        return UnavailableError  # what that token launched is not shown
    if CALLS[name].absent and code in NO_INSTANCE:
        return None
    return RegionDisabledError if kind is AuthError else kind


@pytest.mark.parametrize("code", CODES_SENT)
@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_has_its_class_and_changes_nothing(cell: Account, name: str, code: str) -> None:
    provider, machine = begun(cell, name)
    sent = error(code, "said AWS", 400)
    wanted = expected(name, code)
    cell.fails(CALLS[name].action, times=None if wanted else 1, answer=sent)
    if wanted is None:
        CALLS[name].make(provider, machine)
    else:
        with pytest.raises(ProviderError) as raised:
            CALLS[name].make(provider, machine)
        assert type(raised.value) is wanted, raised.value
        if wanted is CODES[code].kind:
            assert raised.value.scope == CODES[code].scope
        assert len(cell.server.asked(f"Action={CALLS[name].action}&")) <= len(cell.prices.regions)
    afterwards(cell, name, provider, machine)


ANSWERS: dict[str, tuple[dict[str, Any], type[ProviderError]]] = {
    "unknown code": ({"answer": error("SomethingNew", "said AWS", 400)}, ProviderError),
    "fault without a code": ({"answer": Response(500, b"<html>oops</html>", "text/html")}, UnavailableError),
    "busy with an unknown code": ({"answer": error("Busy", "said AWS", 429)}, ThrottledError),
    "no sense": ({"answer": Response(200, b"<html>", "text/xml")}, CutOffError),
    "closed": ({"lost": True}, CutOffError),
    "half": ({"cut": True}, CutOffError),
    "silent": ({"hang": True}, TimedOutError),
}


@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("name", CALLS)
def test_an_answer_that_is_lost_or_senseless_doubles_and_leaks_nothing(
    cell: Account, hurried: Connections, name: str, how: str
) -> None:
    """Closed and cut connections come after the effect; silence without it."""
    provider, machine = begun(cell, name)
    if how == "silent":
        provider = AwsProvider(provider._settings, cell.clock, hurried)
    fault, kind = ANSWERS[how]
    cell.fails(CALLS[name].action, times=None, **fault)
    with pytest.raises(kind) as raised:
        CALLS[name].make(provider, machine)
    assert raised.value.retryable == issubclass(kind, ThrottledError | UnavailableError)
    afterwards(cell, name, cell.connect(regions=("us-east-1",)), machine)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.changes])
def test_an_effect_that_comes_after_the_error_doubles_and_leaks_nothing(cell: Account, name: str) -> None:
    """EC2 says InternalError, and does it all the same, before the next call and again after it."""
    provider, machine = begun(cell, name)
    late: list[Request] = []

    def match(request: Request) -> bool:
        if f"Action={CALLS[name].action}&".encode() not in request.body:
            return False
        late.append(request)
        return True

    cell.fails_where(match, times=1, answer=error("InternalError", "said AWS", 500))
    with pytest.raises(UnavailableError):
        CALLS[name].make(provider, machine)
    cell.server.cloud(late[0])
    afterwards(cell, name, provider, machine)
    if name != "set_up":  # a repeated CreateVpc is another network; tear_down removes that, too
        cell.server.cloud(late[0])
        afterwards(cell, name, provider, machine)


@pytest.mark.parametrize(
    "action", ["RunInstances", "CreateVpc", "CreateInternetGateway", "CreateSecurityGroup", "CreateSubnet"]
)
def test_boto3_repeats_no_call_that_would_make_something_twice(
    ec2_clients: tuple[LoopbackServer, Connections], action: str
) -> None:
    account = opened(ec2_clients[0], Connections(attempts=3), Networks())
    provider = account.connect(regions=("us-east-1",))
    if action == "RunInstances":
        provider.set_up("tw-1", quiet)
    account.fails(action, times=None, answer=error("InternalError", "said AWS", 500))
    with pytest.raises(UnavailableError):
        provider.launch(spec()) if action == "RunInstances" else provider.set_up("tw-1", quiet)
    assert len(account.server.asked(f"Action={action}&")) == 1
