"""Every call about machines of GCP with every kind of failure: what is said, and that it works again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from providers.errors import (
    CutOffError,
    PermissionDeniedError,
    ProviderError,
    SetupError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.gcp.codes import CODES
from providers.gcp.provider import GcpProvider
from providers.gcp.session import Connections
from tests.clouds.gce_project import HOUR_S, NOW_MS, Project, any_spec, spec, the_machine
from tests.clouds.gcp import error
from tests.clouds.server import LoopbackServer, Response

CALLS = {
    "launch": ("POST", "/instances", lambda provider, name: provider.launch(spec(token="token-2"))),
    "launch anywhere": ("POST", "/bulkInsert", lambda provider, name: provider.launch_any(any_spec(token="token-2"))),
    "describe": ("GET", "/aggregated/instances", lambda provider, name: provider.describe([name])),
    "find": ("GET", "/aggregated/operations", lambda provider, name: provider.find("token-1", "us-central1")),
    "renew": ("POST", "/setMetadata", lambda provider, name: provider.renew([name], HOUR_S)),
    "terminate": ("DELETE", "/instances/", lambda provider, name: provider.terminate(name)),
    "list_owned": ("GET", "/aggregated/instances", lambda provider, name: provider.list_owned("tw-1")),
}
MORE_CALLS = {
    **CALLS,
    "image of a launch": ("GET", "/images/", lambda provider, name: provider.launch(spec(token="token-2"))),
    "look before a launch anywhere": (
        *("GET", "/aggregated/instances"),
        lambda provider, name: provider.launch_any(any_spec(token="token-2")),
    ),
    "zones of a launch anywhere": (
        *("GET", "/regions"),
        lambda provider, name: _asking_again(provider).launch_any(any_spec(token="token-2")),
    ),
    "network of a launch": ("GET", "/networks/", lambda provider, name: provider.launch(spec(token="token-2"))),
    "quotas": ("GET", "/regions", lambda provider, name: provider.quotas()),
    "networks": ("GET", "/firewalls", lambda provider, name: provider.networks("tw-1")),
}


def _asking_again(provider: GcpProvider) -> GcpProvider:
    """It asks again which zones there are."""
    provider._connections._zones = None
    return provider


ONE_OF_EACH: dict[tuple[type[ProviderError], str], str] = {}
for _code, _meaning in CODES.items():
    ONE_OF_EACH.setdefault((_meaning.kind, _meaning.scope), _code)
BY_CALL: dict[tuple[str, str], type[ProviderError] | None] = {
    ("launch", "alreadyExists"): UnavailableError,  # what has that name is not shown
    ("launch anywhere", "alreadyExists"): UnavailableError,
    ("image of a launch", "notFound"): SetupError,
    ("network of a launch", "notFound"): SetupError,
    ("renew", "notFound"): None,
    ("terminate", "notFound"): None,
}
"""What a code becomes in a call for which it means something else; None: no error."""
FAILURES: dict[str, tuple[dict[str, Any], type[ProviderError]]] = {
    "throttled": ({"answer": error(429, "Quota exceeded for quota metric", "rateLimitExceeded")}, ProviderError),
    "denied": ({"answer": error(403, "Required 'compute.x' permission", "forbidden")}, PermissionDeniedError),
    "expired": ({"answer": error(401, "Invalid Credentials", "authError")}, ProviderError),
    "broken": ({"answer": error(500, "Internal error", "backendError")}, UnavailableError),
    "lost": ({"lost": True}, CutOffError),
    "cut": ({"cut": True}, CutOffError),
    "hanging": ({"hang": True}, TimedOutError),
}


@pytest.mark.parametrize("failure", sorted(FAILURES))
@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_failed_call_says_so_and_works_again_without_a_second_machine(
    project: Project, gce_clients: tuple[LoopbackServer, Connections], call: str, failure: str
) -> None:
    method, part, ask = CALLS[call]
    how, expected = FAILURES[failure]
    (name,) = project.connect().launch(spec())
    provider = project.connect()
    project.fails(method, part, **how)
    project.connections.call_s = 0.3 if failure == "hanging" else 2.0
    with pytest.raises(expected) as raised:
        ask(provider, name)
    project.connections.call_s = 2.0
    if failure in ("lost", "cut", "hanging", "broken"):
        assert isinstance(raised.value, UnavailableError)  # the call may have taken effect
        assert raised.value.retryable
    before = {each.row.name for each in project.gce.vms}
    ask(provider, name)
    assert len({each.row.name for each in project.gce.vms}) == (2 if "launch" in call else 1)
    assert before <= {each.row.name for each in project.gce.vms}
    if call == "terminate":
        assert not project.gce.left()
    if call == "renew":
        assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {NOW_MS}"


@pytest.mark.parametrize("call", sorted(MORE_CALLS))
def test_each_refusal_has_its_class_and_scope_and_changes_nothing(project: Project, call: str) -> None:
    """One provider meets them all, and works afterwards."""
    method, part, ask = MORE_CALLS[call]
    (name,) = project.connect().launch(spec())

    def state() -> tuple[object, ...]:
        return [(each.row.name, dict(each.metadata)) for each in project.gce.vms], project.gce.left()

    before = state()
    for (kind, scope), code in ONE_OF_EACH.items():
        project.server.requests.clear()
        project.fails(method, part, times=None, answer=error(400, "said GCP", code))
        expected = BY_CALL.get((call, code), kind)
        if expected is None:
            ask(project.connect(), name)
        else:
            with pytest.raises(ProviderError) as raised:
                ask(project.connect(), name)
            assert type(raised.value) is expected, (code, raised.value)
            assert raised.value.retryable == issubclass(expected, ThrottledError | UnavailableError), code
            assert raised.value.scope == scope or expected is not kind, code
        assert state() == before, code
        project.server.faults.clear()
    ask(project.connect(), name)


@pytest.mark.parametrize("call", ["launch", "launch anywhere", "renew", "terminate"])
def test_an_effect_that_comes_after_the_error_doubles_and_leaks_nothing(project: Project, call: str) -> None:
    """GCP says backendError, and does it all the same: before the next call and once more after it."""
    method, part, ask = CALLS[call]
    (name,) = project.connect().launch(spec())
    failed = error(500, "Internal error", "backendError")
    late = project.server.postpones(lambda request: request.method == method and part in request.path, failed)
    with pytest.raises(UnavailableError):
        ask(project.connect(), name)
    for _ in range(2):
        project.server.cloud(late[0])
        ask(project.connect(), name)
        assert (
            len({each.row.name for each in project.gce.vms}) == len(project.gce.vms) == (2 if "launch" in call else 1)
        )
    assert len(project.gce.left()) == {"launch": 2, "launch anywhere": 2, "renew": 1, "terminate": 0}[call]
    if call == "renew":
        assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {NOW_MS}"


@pytest.mark.parametrize(
    "body", [b"{}", b'{"error": {"code": 500, "message": "no"}}', b"[]"], ids=["empty", "error", "list"]
)
@pytest.mark.parametrize("call", ["launch", "launch anywhere"])
def test_a_launch_whose_answer_is_none_may_have_taken_effect(project: Project, call: str, body: bytes) -> None:
    method, part, ask = CALLS[call]
    late = project.server.postpones(
        lambda request: request.method == method and part in request.path, Response(200, body)
    )
    with pytest.raises(UnavailableError):
        ask(project.connect(), "")
    project.server.cloud(late[0])
    ask(project.connect(), "")
    assert len(project.gce.vms) == 1


@pytest.mark.parametrize("call", sorted(MORE_CALLS))
def test_an_error_with_the_status_of_a_success_is_an_error_and_the_call_may_have_taken_effect(
    project: Project, call: str
) -> None:
    method, part, ask = MORE_CALLS[call]
    (name,) = project.connect().launch(spec())
    answer = replace(error(403, "Required 'compute.x' permission", "forbidden"), status=200)
    project.fails(method, part, times=None, answer=answer)
    with pytest.raises(UnavailableError, match="GCP answered 200 with an error: 403: Required"):
        ask(project.connect(), name)
    project.server.faults.clear()
    ask(project.connect(), name)


def test_a_row_of_a_machine_that_cannot_be_read_is_an_error_of_gcp(project: Project) -> None:
    rows = b'{"items": {"zones/us-central1-a": {"instances": [{"name": "tw-token-1-0-181aa3"}]}}}'
    provider = project.connect()
    project.fails("GET", "/aggregated/instances", times=None, answer=Response(200, rows))
    for ask in (lambda: provider.list_owned("tw-1"), lambda: provider.find("token-1", "us-central1")):
        with pytest.raises(UnavailableError, match="is not a time"):
            ask()
