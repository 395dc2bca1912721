"""The network of an installation on GCP: made, found open or deleted, removed, and interrupted at each call."""

from __future__ import annotations

from typing import Any

import pytest

from providers.errors import (
    PermissionDeniedError,
    SetupError,
    UnavailableError,
)
from providers.gcp.calls import CALLS as CALLS_MADE
from providers.gcp.names import network_name
from providers.policy import Use, permissions
from tests.clouds.gce_project import Project, spec
from tests.clouds.gcp import error
from tests.clouds.server import Fault


def names_of(project: Project) -> list[str]:
    return sorted(project.gce.networks.parts)


def test_a_network_is_made_with_one_rule_that_admits_only_its_machines(project: Project) -> None:
    said: list[str] = []
    provider = project.connect()
    assert [network.ready for network in provider.networks("tw-2")] == [False, False]
    provider.set_up("tw-2", said.append)
    name = network_name("tw-2")
    assert said == [f"network {name} was made", f"firewall {name} was made"]
    rule = project.gce.networks.firewalls[name]
    assert (list(rule.source_tags), list(rule.target_tags), list(rule.source_ranges)) == (["tradewind"],) * 2 + ([],)
    assert [network.ready for network in provider.networks("tw-2")] == [True, True]
    assert [part.kind for part in provider.networks("tw-2")[0].parts] == ["firewall", "subnet", "network"]
    provider.set_up("tw-2", said.append)
    assert len(said) == 2


def test_a_network_that_is_deleted_under_a_running_job_is_a_named_error_until_it_is_made_again(
    project: Project,
) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.gce.networks.networks.clear()
    project.gce.networks.firewalls.clear()
    for _ in range(2):  # as it is remembered, and then as it is
        with pytest.raises(SetupError) as raised:
            provider.launch(spec(token="token-2"))
        assert raised.value.scope == "region"
        assert "tradewind up --cloud gcp" in raised.value.hint
    assert [each.id for each in provider.list_owned("tw-1")] == [name]
    provider.set_up("tw-1", lambda _: None)
    provider.launch(spec(token="token-2"))
    assert len(project.gce.left()) == 2


def test_a_rule_that_lets_others_in_is_reported_and_removed(project: Project) -> None:
    name = network_name("tw-1")
    open_rule: dict[str, Any] = {"name": "ssh", "network": f"global/networks/{name}", "direction": "INGRESS"}
    open_rule |= {"source_ranges": ["0.0.0.0/0"], "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}]}
    project.connections.once("FirewallsClient", "insert_unary", firewall_resource=open_rule)
    (here, _) = project.connect().networks("tw-1")
    assert here.missing == ("removal of the firewall rule ssh",)
    with pytest.raises(SetupError):
        project.connect().launch(spec())
    project.connect().set_up("tw-1", lambda _: None)
    assert list(project.gce.networks.firewalls) == [name]


@pytest.mark.parametrize("verb", ["set_up", "tear_down"])
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("how", [{"lost": True}, {"answer": error(503, "no", "backendError")}])
def test_making_and_removing_goes_on_after_any_call_that_failed(
    project: Project, verb: str, at: int, how: dict[str, Any]
) -> None:
    """Each call to the cloud in turn is carried out without an answer, or is refused."""
    install = "tw-1" if verb == "tear_down" else "tw-3"
    before = names_of(project)
    calls = iter(range(1000))
    fault = Fault(lambda request: "/global/" in request.path and next(calls) == at, 1, **how)
    project.server.faults.append(fault)
    for _ in range(2):
        try:
            getattr(project.connect(), verb)(install, lambda _: None)
        except UnavailableError:
            continue
    getattr(project.connect(), verb)(install, lambda _: None)
    own = [network_name(install)] * 2  # the network and its firewall have one name
    expected = [*before, *own] if verb == "set_up" else [each for each in before if each not in own]
    assert names_of(project) == sorted(expected)


def test_what_takes_long_is_reported_and_goes_on(project: Project) -> None:
    project.gce.networks.takes_s = 60
    with pytest.raises(UnavailableError, match="is being created"):
        project.connect().set_up("tw-2", lambda _: None)
    project.clock.advance(60)
    with pytest.raises(UnavailableError, match="is being created"):
        project.connect().set_up("tw-2", lambda _: None)
    project.clock.advance(60)
    project.connect().set_up("tw-2", lambda _: None)


def test_the_printed_role_is_enough_for_networks_and_no_permission_is_superfluous(project: Project) -> None:
    granted = frozenset(permissions(CALLS_MADE, Use.NETWORKS, Use.MACHINES))
    project.gce.networks.takes_s = 1
    for missing in (None, *permissions(CALLS_MADE, Use.NETWORKS)):
        project.gce.granted = granted - {missing}
        install, denied = f"tw-{missing}", []
        for verb in ("set_up", "tear_down"):
            for _ in range(4):
                try:
                    getattr(project.connect(), verb)(install, lambda _: None)
                except PermissionDeniedError as problem:
                    denied.append(problem.action)
                except UnavailableError:
                    project.clock.advance(1)
        assert set(denied) == ({missing} if missing else set())
        project.gce.granted = None
        for verb in ("set_up", "tear_down"):
            for _ in range(4):
                try:
                    getattr(project.connect(), verb)(install, lambda _: None)
                except UnavailableError:
                    project.clock.advance(1)
        assert names_of(project) == [network_name("tw-1")] * 2


@pytest.mark.parametrize("verb", ["set_up", "tear_down"])
def test_a_network_whose_parts_come_or_go_after_the_error_is_there_once_or_not_at_all(
    project: Project, verb: str
) -> None:
    install = "tw-1" if verb == "tear_down" else "tw-3"
    before = names_of(project)
    failed = error(500, "Internal error", "backendError")
    late = project.server.postpones(lambda request: request.method in ("POST", "DELETE"), failed)
    with pytest.raises(UnavailableError):
        getattr(project.connect(), verb)(install, lambda _: None)
    for _ in range(2):
        project.server.cloud(late[0])
        getattr(project.connect(), verb)(install, lambda _: None)
    own = [network_name(install)] * 2
    assert names_of(project) == (sorted([*before, *own]) if verb == "set_up" else [])


def test_a_machine_or_network_that_a_policy_of_the_organisation_forbids_is_denied(project: Project) -> None:
    text = "Constraint constraints/compute.{} violated for project 1. Add instance x to the constraint"
    provider = project.connect()
    project.gce.forbids = text.format("vmExternalIpAccess")
    for project.gce.refuses_late in (True, False):
        with pytest.raises(PermissionDeniedError) as raised:
            provider.launch(spec(token=f"token-{project.gce.refuses_late:d}"))
        assert raised.value.action == "constraints/compute.vmExternalIpAccess"
    answer = error(412, text.format("skipDefaultNetworkCreation"), "conditionNotMet")
    project.fails("POST", "/global/networks", answer=answer)
    with pytest.raises(PermissionDeniedError, match="skipDefaultNetworkCreation") as raised:
        provider.set_up("tw-2", lambda _: None)
    assert "orgpolicies" in raised.value.hint
