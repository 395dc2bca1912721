"""Joining: how an agent reaches the store and, among several machines, gets its seat, before it has introduced itself.

At that time, a machine of another host has only the signed URLs of its user data. The reason why it cannot take part is
reported on its console and to the control plane, as the object `node` of its launch.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from orchestrator.nodes import sealing
from orchestrator.nodes.access.machine_access import Access, BorrowedAccess, OwnAccess
from orchestrator.nodes.boot.contact import Contact, Urls
from orchestrator.nodes.channel import Channel, control_store, places
from orchestrator.nodes.handover import Handover
from orchestrator.nodes.messages import NodeFacts
from orchestrator.nodes.seating import Door, Seat, seated
from trainers.errors import ObjectStoreError, StoreDenied
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

if TYPE_CHECKING:
    from nacl.public import PrivateKey

TRANSFERS = Patience(request_s=120.0)


def take_part(url: str, token: str, nodes: int, given: Handover, boot: str) -> tuple[Seat, Contact | None] | None:
    """This machine's seat among several and, for a machine of another host, the contact to the objects of its rank;
    None if it gets no seat. Raises PeerUnreachable, StoreDenied, SiteError."""
    doors: list[Door]
    if given.urls is None:
        with _variables(given):
            store = control_store(url)
        doors, endpoint = [Channel(store, place) for place in places(token, nodes)], ""
    else:
        urls, endpoint = _seats(given), given.urls.endpoint
        doors = [Contact(urls, rank) for rank in range(nodes)]
    endpoint = endpoint or given.variables.get("AWS_ENDPOINT_URL", "")
    seat = seated(doors, given.boot_token, boot=boot, url=url, endpoint=endpoint, say=say)
    if seat is None:
        return None
    door = doors[seat.rank]
    return seat, door if isinstance(door, Contact) else None


def _seats(given: Handover) -> Urls:
    """The URLs of all ranks. Raises StoreDenied, SiteError."""
    assert given.urls is not None
    while True:
        try:
            return Contact(given.urls).seats(given.boot_token)
        except StoreDenied:
            raise
        except ObjectStoreError as error:
            say(str(error))
            time.sleep(1.0)


def unfit(given: Handover, why: str) -> None:
    """Report on the console and, from another host, to the control plane why this machine cannot be used."""
    say(why)
    if given.urls is None:
        return
    start = secrets.token_hex(8)
    with suppress(ObjectStoreError):  # then only the console shows it
        Contact(given.urls).put_facts(NodeFacts(start, "", sealing.error_proof(given.boot_token, start, why), why))


@contextmanager
def _variables(given: Handover) -> Iterator[None]:
    """Set the variables that stores read when they are opened."""
    os.environ.update(given.variables)
    try:
        yield
    finally:
        for name in given.variables:
            del os.environ[name]


def opened(url: str, place: str, given: Handover, key: PrivateKey) -> tuple[ObjectStore, ObjectStore, Access]:
    """The store of control objects, the root of all stores, and the access to both of the machine at this place. Raises
    ObjectStoreError."""
    with _variables(given):
        borrowed = None if given.urls is None else BorrowedAccess(key, place, given.variables)
        credentials = None if borrowed is None else borrowed.credentials
        root = open_store(url.rpartition("/control/")[0], TRANSFERS, credentials)
        return control_store(url, credentials), root, borrowed or OwnAccess(given.variables)


def say(message: str) -> None:
    """Print to the machine's console."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
