"""Seating: gives each machine of a gang its rank, and lets the machines of one run find and trust one another.

All of them run the same user data. Each claims the first free rank; it keeps it if its agent starts again during the
same boot, and a machine that boots a second time gets none. Machines of other hosts reach one another at the addresses
from which they reach the store, or at those that their provider declares.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from orchestrator.nodes.channel import Garbled
from orchestrator.nodes.messages import NodeFacts
from trainers.errors import ObjectStoreError, StoreDenied

LOOPBACK = "127.0.0.1"
DECLARED_ADDRESS = "TRADEWIND_ADDRESS"
"""Environment variable of a machine: the IP address at which the others reach it, according to its provider."""
PORTS = "the TCP ports of net.ipv4.ip_local_port_range (32768 to 60999, unless changed)"
REACH_S = 15.0
_NO_HOST = "192.0.2.1"  # reserved for documentation: nothing is sent there
_LOOK_S, _CONNECT_S = 0.2, 3.0
_SIOCGIFADDR = 0x8915  # netdevice(7)


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a machine in its run: its `rank` among `nodes` machines, and the IP `address` at which the others
    reach it. They share the secret `token` of their Ray cluster. `head` is its address (rank 0 starts it and has
    none)."""

    rank: int = 0
    nodes: int = 1
    address: str = LOOPBACK
    token: str | None = None
    head: str | None = None


class Door(Protocol):
    """The requests of a machine without a rank about a rank: a Channel, or the Contact of a machine without
    credentials. Methods raise ObjectStoreError."""

    def claim(self, by: str) -> str:
        """Claim the rank; returns its owner."""
        ...

    def facts(self) -> NodeFacts | None:
        """The facts that the machine with this rank has published. Raises Garbled."""
        ...


class PeerUnreachable(Exception):
    """Machines of this run do not reach one another; names them and the remedy."""


def take_seat(doors: Sequence[Door], *, instance: str, boot: str) -> int | None:
    """The rank of this machine among those behind the doors; None if it has started before, or if there are more
    machines than ranks. Raises ObjectStoreError."""
    me = f"{instance} {boot}"
    for rank, door in enumerate(doors):
        holder = door.claim(me)
        if holder == me:
            return rank
        if holder.partition(" ")[0] == instance:
            return None
    return None


def seated(
    doors: Sequence[Door],
    boot_token: str,
    *,
    boot: str,
    url: str,
    endpoint: str,
    say: Callable[[str], None],
) -> Seat | None:
    """This machine's seat among several, as soon as it can be taken; None if it gets none. `url` is the store's URL,
    `endpoint` the URL of its server if that is not a cloud's. Raises PeerUnreachable, StoreDenied."""
    while True:
        try:
            rank = take_seat(doors, instance=instance_id(), boot=boot)
            break
        except StoreDenied:
            raise
        except ObjectStoreError as error:
            say(str(error))
            time.sleep(1.0)
    if rank is None:
        return None
    address, head = own_address(url, endpoint, rank), None
    if rank > 0:
        head = _head(doors[0], say)
        reach(head, f"machine {rank} ({instance_id()}, {address})")
    return Seat(rank, len(doors), address, cluster_token(boot_token), head)


def reach(address: str, who: str, patience_s: float = REACH_S, *, whom: str = "machine 0") -> None:
    """Make sure that this machine, called `who`, can connect to Ray on another one, which listens at `address`. Raises
    PeerUnreachable."""
    host, _, port = address.rpartition(":")
    give_up = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection((host, int(port)), _CONNECT_S).close()
            return
        except OSError as error:
            if time.monotonic() >= give_up:
                raise PeerUnreachable(f"{who} cannot connect to {whom} at {address}: {error}. {remedy()}") from error
        time.sleep(_LOOK_S)


def remedy() -> str:
    """The remedy for machines that do not reach one another."""
    return (
        f"Machines of one run must reach one another on {PORTS}: allow that in their firewalls, declare other "
        "addresses (peer_address, for your own machines), or give machines of separate networks another region"
    )


def _head(door: Door, say: Callable[[str], None]) -> str:
    """The address of the run's Ray cluster, once machine 0 has published it."""
    while True:
        try:
            facts = door.facts()
            if facts is not None and facts.ray:
                return facts.ray
        except (ObjectStoreError, Garbled) as error:
            say(str(error))
        time.sleep(_LOOK_S)


def cluster_token(boot_token: str) -> str:
    """The secret of a run's Ray cluster, which every machine of its launch can compute."""
    return hmac.new(boot_token.encode(), b"ray cluster", hashlib.sha256).hexdigest()


def instance_id() -> str:
    """The identity of this machine: the provider's id, otherwise the host's name."""
    return (os.environ.get("TRADEWIND_INSTANCE_ID") or socket.gethostname()).replace(" ", "-")


def own_address(url: str, endpoint: str, rank: int) -> str:
    """The IP address at which the other machines of the run reach this one: the declared address, otherwise the one
    from which it reaches the store. The machines of one host have different loopback addresses."""
    if declared := os.environ.get(DECLARED_ADDRESS):
        return declared
    found = LOOPBACK if "://" not in url else _source_address(urlsplit(endpoint).hostname or _NO_HOST)
    return f"127.0.0.{rank + 1}" if found.startswith("127.") else found


def _source_address(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return socket.gethostbyname(socket.gethostname())
        return str(probe.getsockname()[0])


def network_variables(seat: Seat) -> Mapping[str, str]:
    """The variables that make gloo and NCCL use the interface with the seat's address. By default, gloo uses the
    interface of the host's name, which on many systems is the loopback interface."""
    if seat.nodes == 1 or seat.address.startswith("127.") or (name := _interface(seat.address)) is None:
        return {}
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}


def _interface(address: str) -> str | None:
    """The name of the network interface with this IPv4 address."""
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                if fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24] == wanted:
                    return name
    return None


def free_port(address: str) -> int:
    """A port of this address on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
