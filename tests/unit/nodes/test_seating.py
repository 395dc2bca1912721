"""How the machines of one run find and reach one another."""

from __future__ import annotations

import socket

import pytest

from orchestrator.nodes.seating import (
    DECLARED_ADDRESS,
    PeerUnreachable,
    Seat,
    free_port,
    network_variables,
    own_address,
    reach,
)
from providers.static import provider


def test_machines_of_one_host_have_loopback_addresses_of_their_own() -> None:
    assert [own_address("/folder", "", rank) for rank in range(2)] == ["127.0.0.1", "127.0.0.2"]
    assert own_address("s3://bucket", "http://127.0.0.1:9000", 1) == "127.0.0.2"


def test_a_declared_address_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DECLARED_ADDRESS, "10.1.2.3")
    assert own_address("s3://bucket", "http://127.0.0.1:9000", 1) == "10.1.2.3"
    assert provider.ADDRESS_VARIABLE == DECLARED_ADDRESS


def test_a_machine_that_cannot_be_reached_is_named_with_the_ports_and_the_remedy() -> None:
    with pytest.raises(PeerUnreachable) as caught:
        reach(f"127.0.0.1:{free_port('127.0.0.1')}", "machine 1 (static-desk2-x, 10.0.0.2)", 0.0)
    said = str(caught.value)
    assert said.startswith("machine 1 (static-desk2-x, 10.0.0.2) cannot connect to machine 0 at 127.0.0.1:")
    assert "32768 to 60999" in said
    assert "peer_address" in said


def test_a_machine_that_listens_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach(f"127.0.0.1:{server.getsockname()[1]}", "machine 1", 0.0)


def test_processes_on_one_host_or_machine_use_whatever_interface_they_find() -> None:
    assert network_variables(Seat()) == {}
    assert network_variables(Seat(1, 2, "127.0.0.2")) == {}
    assert network_variables(Seat(1, 2, "192.0.2.1")) == {}, "no interface has it"


def test_processes_of_several_hosts_use_the_interface_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.ioctl", lambda _probe, _number, _name: bytes(20) + socket.inet_aton("10.0.0.2"))
    (_, name), *_ = socket.if_nameindex()
    assert network_variables(Seat(1, 2, "10.0.0.2")) == {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}
