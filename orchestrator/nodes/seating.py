"""Seating: which rank each machine of a gang has, and how the machines of one run find and trust one another.

All of them run the same user data. Each claims the first free rank; it keeps it if its agent starts again during the
same boot, and a machine that boots a second time gets none.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.nodes.channel import Channel, Garbled, places
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore

LOOPBACK = "127.0.0.1"
_NO_HOST = "192.0.2.1"  # reserved for documentation: nothing is sent there
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a machine in its run: its `rank` among `nodes` machines, and the IP `address` at which the others
    reach it. Several share the secret `token` of their Ray cluster, whose address is `head`, except for rank 0, which
    starts it."""

    rank: int = 0
    nodes: int = 1
    address: str = LOOPBACK
    token: str | None = None
    head: str | None = None


def take_seat(store: ObjectStore, token: str, nodes: int, *, instance: str, boot: str) -> int | None:
    """The rank of this machine; None if it has started before, or if there are more machines than ranks. Raises
    ObjectStoreError."""
    me = f"{instance} {boot}"
    for rank, place in enumerate(places(token, nodes)):
        holder = Channel(store, place).claim(me)
        if holder == me:
            return rank
        if holder.partition(" ")[0] == instance:
            return None
    return None


def seated(
    store: ObjectStore,
    token: str,
    nodes: int,
    boot_token: str,
    *,
    boot: str,
    endpoint: str,
    say: Callable[[str], None],
) -> Seat | None:
    """This machine's seat among several, as soon as it can be taken; None if it gets none. `endpoint` is the URL of the
    store's server, if it is not that of a cloud."""
    while True:
        try:
            rank = take_seat(store, token, nodes, instance=instance_id(), boot=boot)
            break
        except ObjectStoreError as error:
            say(str(error))
            time.sleep(1.0)
    if rank is None:
        return None
    head = None if rank == 0 else _head(store, places(token, nodes)[0], say)
    return Seat(rank, nodes, own_address(store.url, endpoint, rank), cluster_token(boot_token), head)


def _head(store: ObjectStore, place: str, say: Callable[[str], None]) -> str:
    """The address of the run's Ray cluster, once machine 0 has published it."""
    while True:
        try:
            facts = Channel(store, place).facts()
            if facts is not None and facts.ray:
                return facts.ray
        except (ObjectStoreError, Garbled) as error:
            say(str(error))
        time.sleep(_LOOK_S)


def cluster_token(boot_token: str) -> str:
    """The secret of a run's Ray cluster, which every machine of its launch can compute."""
    return hmac.new(boot_token.encode(), b"ray cluster", hashlib.sha256).hexdigest()


def instance_id() -> str:
    """What tells this machine from others: the provider's id, else the host's name."""
    return (os.environ.get("TRADEWIND_INSTANCE_ID") or socket.gethostname()).replace(" ", "-")


def own_address(url: str, endpoint: str, rank: int) -> str:
    """The IP address at which the other machines of the run reach this one: that from which it reaches the store. The
    machines of one host have different loopback addresses, so that Ray can tell them apart."""
    found = LOOPBACK if "://" not in url else _source_address(urlsplit(endpoint).hostname or _NO_HOST)
    return f"127.0.0.{rank + 1}" if found.startswith("127.") else found


def _source_address(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return socket.gethostbyname(socket.gethostname())
        return str(probe.getsockname()[0])


def free_port(address: str) -> int:
    """A port of this address on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
