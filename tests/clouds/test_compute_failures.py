"""Every call about machines of GCP with every kind of failure: what is said, and that it works again."""

from __future__ import annotations

from typing import Any

import pytest

from providers.errors import (
    CutOffError,
    PermissionDeniedError,
    ProviderError,
    TimedOutError,
    UnavailableError,
)
from providers.gcp.session import Connections
from tests.clouds.gce_project import HOUR_S, NOW_MS, Project, spec, the_machine
from tests.clouds.gcp import error
from tests.clouds.server import LoopbackServer

CALLS = {
    "launch": ("POST", "/instances", lambda provider, name: provider.launch(spec(token="token-2"))),
    "describe": ("GET", "/aggregated/instances", lambda provider, name: provider.describe([name])),
    "find": ("GET", "/aggregated/operations", lambda provider, name: provider.find("token-1", "us-central1")),
    "renew": ("POST", "/setMetadata", lambda provider, name: provider.renew([name], HOUR_S)),
    "terminate": ("DELETE", "/instances/", lambda provider, name: provider.terminate(name)),
    "list_owned": ("GET", "/aggregated/instances", lambda provider, name: provider.list_owned("tw-1")),
}
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
    assert len({each.row.name for each in project.gce.vms}) == (2 if call == "launch" else 1)
    assert before <= {each.row.name for each in project.gce.vms}
    if call == "terminate":
        assert not project.gce.left()
    if call == "renew":
        assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {NOW_MS}"


@pytest.mark.parametrize("call", ["launch", "renew", "terminate"])
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
            len({each.row.name for each in project.gce.vms}) == len(project.gce.vms) == (2 if call == "launch" else 1)
        )
    assert len(project.gce.left()) == {"launch": 2, "renew": 1, "terminate": 0}[call]
    if call == "renew":
        assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {NOW_MS}"
