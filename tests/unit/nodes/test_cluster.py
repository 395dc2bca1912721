"""The machines of a run watch one another: also those that are not machine 0, between which gradients travel, too."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.nodes import cluster as module
from orchestrator.nodes.cluster import Cluster
from orchestrator.nodes.seating import PeerUnreachable, Seat


class Ray:
    """What ray.nodes() says of machines that listen at these addresses, by rank."""

    def __init__(self, listening: list[socket.socket]) -> None:
        self.gone: int | None = None
        self.util, self._listening = self, [at(each) for each in listening]

    def get_placement_group(self, _name: str) -> Ray:
        return self

    def wait(self, _timeout_s: float) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"Alive": rank != self.gone, "Resources": {f"machine-{rank}": 1.0, "CPU": 1.0}, **each}
            for rank, each in reversed([*enumerate(self._listening)])
        ]


class Node:
    """The Ray of this machine."""

    def dead_processes(self) -> list[object]:
        return []


def at(listening: socket.socket) -> dict[str, object]:
    host, port = listening.getsockname()
    return {"NodeManagerAddress": host, "NodeManagerPort": port}


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Machines 0, 1 and 2."""
    monkeypatch.setattr(module, "REACH_S", 0.0)
    with ExitStack() as stack:
        yield [stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(3)]


def machine_3(folder: Path, others: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    host, port = others[0].getsockname()
    made = Cluster(folder, Seat(3, 4, "127.0.0.1", "ab", f"{host}:{port}"))
    monkeypatch.setattr(made, "_ray", Ray(others))
    monkeypatch.setattr(made, "_node", Node())
    return made


def looks(cluster: Cluster) -> str | None:
    """Why it finds the run over, at the next look."""
    cluster._peers_seen_at = float("-inf")
    return cluster.dead()


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_machine_that_cannot_be_reached_any_more_is_noticed_by_one_of_higher_rank(
    tmp_path: Path, others: list[socket.socket], monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    cluster = machine_3(tmp_path, others, monkeypatch)
    cluster.gather()
    assert cluster.gathered
    assert not any(looks(cluster) for _ in range(6))
    host, port = others[gone].getsockname()
    others[gone].close()
    found = {looks(cluster) for _ in range(4)}
    assert found == {None, f"the machine of the run at {host}:{port} cannot be reached"}


def test_machine_0_says_which_one_is_gone(
    tmp_path: Path, others: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, ray = Cluster(tmp_path, Seat(0, 3, "127.0.0.1", "ab")), Ray(others)
    for name, value in (("_ray", ray), ("_node", Node()), ("_group", ray)):
        monkeypatch.setattr(cluster, name, value)
    assert looks(cluster) is None
    ray.gone = 1
    assert looks(cluster) == "machine 1 of the run is gone"


def test_a_machine_that_could_never_be_reached_is_named_with_the_remedy(
    tmp_path: Path, others: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = machine_3(tmp_path, others, monkeypatch)
    others[2].close()
    with pytest.raises(PeerUnreachable, match=r"machine 3 .* cannot connect to machine 2 at 127\.0\.0\.1:.*firewalls"):
        cluster.gather()
    assert cluster.joined
    assert not cluster.gathered
