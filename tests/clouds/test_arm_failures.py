"""Every request that the provider of Azure makes, with every kind of failure: what is said, and that it works again.

Each operation is carried out with its first request failing, then with its second, and so on. A failed request may have
taken effect or not; either way nothing is doubled, nothing is left behind, and the same call works afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from providers.azure.codes import CODES
from providers.azure.provider import AzureProvider
from providers.azure.session import Connections
from providers.errors import (
    CutOffError,
    FormatError,
    PermissionDeniedError,
    ProviderError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from tests.clouds.arm import SUBSCRIPTION
from tests.clouds.arm_account import Account, opened, spec
from tests.clouds.azure import Token, error
from tests.clouds.server import Fault, LoopbackServer, Request, Response

HOUR_S = 3600
DENIED = "The client 'x' does not have authorization to perform action 'Microsoft.Compute/x/read' over scope '/s'"

Ask = Callable[[AzureProvider, str], object]
CALLS: dict[str, Ask] = {
    "launch": lambda provider, name: provider.launch(spec(token="token-2", count=2)),
    "describe": lambda provider, name: provider.describe([name]),
    "find": lambda provider, name: provider.find("token-1", "eastus"),
    "renew": lambda provider, name: provider.renew([name], HOUR_S),
    "terminate": lambda provider, name: provider.terminate(name),
    "list_owned": lambda provider, name: provider.list_owned("tw-1"),
    "quotas": lambda provider, name: provider.quotas(),
    "networks": lambda provider, name: provider.networks("tw-1"),
}
ONE_OF_EACH: dict[tuple[type[ProviderError], str], str] = {}
for _code, _meaning in CODES.items():
    ONE_OF_EACH.setdefault((_meaning.kind, _meaning.scope), _code)
NOTHING_THERE = ("ResourceNotFound", "ResourceGroupNotFound")
"""No error where something is looked for, renewed or ended."""
FAILURES: dict[str, tuple[dict[str, Any], type[ProviderError]]] = {
    "throttled": ({"answer": error("TooManyRequests", "slower", 429, {"Retry-After": "7"})}, ThrottledError),
    "denied": ({"answer": error("AuthorizationFailed", DENIED, 403)}, PermissionDeniedError),
    "broken": ({"answer": error("InternalServerError", "no", 500)}, UnavailableError),
    "an error called a success": ({"answer": error("AuthorizationFailed", DENIED, 200)}, UnavailableError),
    "a proxy's page": ({"answer": Response(200, b"<html>")}, CutOffError),
    "lost": ({"lost": True}, CutOffError),
    "hanging": ({"hang": True}, TimedOutError),
}


@pytest.fixture(scope="module")
def hasty(arm_clients: tuple[LoopbackServer, LoopbackServer, Connections]) -> Connections:
    """A connection that does not wait long."""
    server, _, connections = arm_clients
    return Connections(SUBSCRIPTION, server.url, connections._ca_file, Token(), call_s=0.2, attempts=1)


def fails_at(account: Account, number: int, how: dict[str, Any]) -> Fault:
    """The request with this number fails, counted from now."""
    numbers = count()

    def due(_: Request, numbers: Iterator[int] = numbers) -> bool:
        return next(numbers) == number

    account.server.faults = [Fault(due, 1, **how)]
    return account.server.faults[0]


@pytest.mark.parametrize(
    ("call", "kind"),
    [("list_owned", "virtualMachines"), ("list_owned", "sshPublicKeys"), ("quotas", "usages"), ("quotas", "skus")],
)
def test_a_list_whose_pages_lead_back_to_the_first_one_is_an_error_and_not_a_loop(
    arm_clients: tuple[LoopbackServer, LoopbackServer, Connections], call: str, kind: str
) -> None:
    account = opened(*arm_clients, "tw-1")
    (name,) = account.connect().launch(spec())
    provider = account.connect(regions=("eastus",))
    asked: list[str] = []

    def in_a_circle(request: Request) -> bool:
        if not request.path.endswith(f"/{kind}"):
            return False
        asked.append(request.path)
        assert len(asked) < 9, "it does not end"
        link = f"{account.server.url}{request.path}?api-version=2024-07-01&again=1"
        account.server.faults[0].answer = Response(body=json.dumps({"value": [], "nextLink": link}).encode())
        return True

    account.server.faults = [Fault(in_a_circle, None, answer=Response())]
    with pytest.raises(FormatError, match="does not end: a page links back to an earlier one"):
        CALLS[call](provider, name)
    account.server.faults.clear()
    assert len(account.arm.alive()) == 1


@pytest.mark.parametrize("failure", sorted(FAILURES))
@pytest.mark.parametrize("call", sorted(CALLS))
def test_whatever_request_fails_it_is_named_and_the_same_call_works_again(
    arm_clients: tuple[LoopbackServer, LoopbackServer, Connections], hasty: Connections, call: str, failure: str
) -> None:
    how, expected = FAILURES[failure]
    ask, failed = CALLS[call], 0
    for number in count():
        account = opened(*arm_clients, "tw-1")
        patient = account.connections
        (name,) = account.connect().launch(spec())
        account.connections = hasty if failure == "hanging" else patient
        provider, fault = account.connect(regions=("eastus",)), fails_at(account, number, how)
        raised: ProviderError | None = None
        try:
            ask(provider, name)
        except ProviderError as error:
            raised = error
        if fault.times:  # there were not so many requests
            break
        if raised is not None:
            failed += 1
            assert isinstance(raised, expected | UnavailableError), (number, raised)
            assert raised.retryable or failure == "denied"
            assert not isinstance(raised, ThrottledError) or raised.retry_after_s == 7
        else:
            assert call == "launch", number  # what a machine became, or when it began, is also looked up later
        account.connections = patient
        account.server.faults.clear()
        provider = account.connect(regions=("eastus",))
        ask(provider, name)
        machines = {"launch": 3, "terminate": 0}.get(call, 1)
        assert len(account.arm.alive()) == machines, number
        assert len(account.arm.beside) == 3 * machines
        assert len(account.arm.every()) <= (5 if call == "launch" else 1)  # of which 2 were deleted again
        if call == "terminate":
            assert not provider.describe([name])[0].alive
        for each in provider.list_owned("tw-1"):
            provider.terminate(each.id)
        assert not account.arm.alive()
        assert not account.arm.beside
    assert failed > 0


@pytest.mark.parametrize("call", sorted(CALLS))
def test_each_refusal_has_its_class_and_scope_and_changes_nothing(
    arm_clients: tuple[LoopbackServer, LoopbackServer, Connections], call: str
) -> None:
    """One provider meets them all at its first request, and works afterwards."""
    account = opened(*arm_clients, "tw-1")
    (name,) = account.connect().launch(spec())

    def state() -> list[object]:
        return [(each.name, dict(each.tags)) for each in account.arm.every()]

    before = state()
    for (kind, scope), code in ONE_OF_EACH.items():
        account.server.requests.clear()
        fails_at(account, 0, {"answer": error(code, "said Azure", 400)})
        if code in NOTHING_THERE and call not in ("launch", "quotas"):
            CALLS[call](account.connect(regions=("eastus",)), name)
        else:
            with pytest.raises(ProviderError) as raised:
                CALLS[call](account.connect(regions=("eastus",)), name)
            assert (type(raised.value), raised.value.scope) == (kind, scope), code
            assert raised.value.retryable == issubclass(kind, ThrottledError | UnavailableError), code
        assert state() == before, code
        account.server.faults.clear()
    CALLS[call](account.connect(regions=("eastus",)), name)


@pytest.mark.parametrize("call", ["launch", "renew", "terminate"])
def test_an_effect_that_comes_after_the_error_doubles_and_leaks_nothing(
    arm_clients: tuple[LoopbackServer, LoopbackServer, Connections], call: str
) -> None:
    """Azure says InternalServerError, and does it all the same: before the next call and once more after it."""
    account = opened(*arm_clients, "tw-1")
    (name,) = account.connect().launch(spec())

    def change(request: Request) -> bool:
        part = "/tags" if call == "renew" else "/virtualMachines/"
        return request.method in ("PUT", "PATCH", "DELETE") and part in request.path

    late = account.server.postpones(change, error("InternalServerError", "no", 500))
    with pytest.raises(UnavailableError):
        CALLS[call](account.connect(), name)
    for _ in range(2):
        account.server.cloud(late[0])
        CALLS[call](account.connect(), name)
        assert len(account.arm.alive()) == {"launch": 3, "renew": 1, "terminate": 0}[call]
        assert len(account.arm.beside) == 3 * len(account.arm.alive())
    if call == "renew":
        assert account.arm.alive()[0].tags["tradewind-lives"].startswith(f"{HOUR_S} from ")
