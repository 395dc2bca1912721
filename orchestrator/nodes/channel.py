"""Channel: the objects through which the control plane and one machine's agent communicate.

    <token>/order     the control plane: nodes.messages.Order (for a run on several machines: <token>/<rank>/order, ...)
    <token>/grants/<digest>   the control plane: the secrets of the ordered run, sealed to the machine's key
    <token>/node      the agent: NodeFacts
    <token>/access    the control plane: credentials for the store, sealed to the machine's key (nodes.access)
    <token>/report    the agent: NodeReport
    <token>/<rank>/claim    the agent: which of several machines has this rank
    <token>/node      for several machines of other hosts: why one of them cannot be used
    runs/<run>        the control plane: the launch token of the machines that execute the run, and their number
    epoch             the control plane: the highest epoch of any that gave orders; machines cannot write it

The machine makes all connections, so it needs no open port and works behind NAT. The
store may be a folder of this host, which is how `local` works, or a bucket.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.errors import SiteError
from orchestrator.formats.codec import CodecError, dumps, dumps_brief, loads
from orchestrator.nodes.messages import MOST_BYTES, MOST_ORDER_BYTES, NodeFacts, NodeReport, Order
from trainers.errors import ObjectStoreError, UnreadableObject
from trainers.objects.base import ObjectStore
from trainers.objects.credentials import Credentials
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

MOST_SECRET_BYTES = 4 << 20
NEARBY_S = 0.2  # only stores on this host are polled more often than this
NEARBY_POLL_S, NEARBY_EAGER_S = 0.1, 0.02
REPORT = "report"
MOST_EPOCH_DIGITS = 15
_MACHINES = re.compile(rb"(?P<token>[0-9A-Za-z_-]+)(?: (?P<nodes>[1-9][0-9]{0,3}))?")
_GIVEN_UP = "wait: Tradewind gives the machine up after a minute, and its job continues elsewhere"
_EPOCH = "epoch"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often both ends poll, in seconds: `poll_s` usually, `eager_s` while one waits for the other. The agent
    reports a change of state at once, other news after `news_s`, and that it is alive after `beat_s`."""

    poll_s: float
    eager_s: float
    news_s: float
    beat_s: float

    @classmethod
    def of(cls, store: ObjectStore) -> Pace:
        """The pace for a store: polling a folder costs little, but each request to a bucket costs money (per machine
        and month, at 0.4 and 5 US$ for a million reads and writes, about 4 US$)."""
        if store.poll_s < NEARBY_S:
            return cls(NEARBY_POLL_S, NEARBY_EAGER_S, 0.2, 0.5)
        return cls(store.poll_s, min(store.poll_s, 0.25), 5.0, 5.0)


class Garbled(Exception):
    """An object of the channel is not valid; says why."""


class DamagedOrder(SiteError):
    """An object of one machine or run cannot have been written by the control plane; only that machine or run is
    affected."""


class Channel:
    """Both ends of the channel of the machine with this `token`: its launch token, or one of `places`. Methods raise
    ObjectStoreError."""

    def __init__(self, store: ObjectStore, token: str) -> None:
        self._store = store
        self.token = token

    @property
    def report_key(self) -> str:
        """The key of the agent's newest report, for people who want to know its age; neither end of the channel uses
        it."""
        return f"{self.token}/{REPORT}"

    # The control plane's end

    def order(self) -> tuple[Order | None, str]:
        """The newest order, and its version for `replace_order`; (None, "") if there is none. Raises DamagedOrder."""
        found = self._store.get(f"{self.token}/order", MOST_ORDER_BYTES)
        if found is None:
            return None, ""
        try:
            return loads(Order, found.data), found.version
        except CodecError as error:
            raise DamagedOrder(
                f"the order {self._store.where(f'{self.token}/order')} is damaged: {error}",
                hint=_GIVEN_UP,
            ) from error

    def replace_order(self, order: Order, version: str) -> str:
        """Replace the order that has this version. Returns the new version. Raises SiteError if another control plane
        has written one meanwhile.

        The machine may run an earlier version of Tradewind, so fields with default values are not written."""
        key, data = f"{self.token}/order", dumps_brief(order).encode()
        if len(data) > MOST_ORDER_BYTES:
            raise SiteError(
                f"the order for {order.run.run_id if order.run else self.token} has {len(data)} bytes; the limit is "
                f"{MOST_ORDER_BYTES}",
                hint="shorten train.args, train.env or train.setup of the job",
            )
        if not version:
            if not self._store.put_if_absent(key, data):
                raise _overtaken(self._store.where(key))
            found = self._store.get(key, MOST_ORDER_BYTES)
            if found is None or found.data != data:
                raise _overtaken(self._store.where(key))
            return found.version
        replaced = self._store.put_if_match(key, data, version)
        if replaced is None:
            raise _overtaken(self._store.where(key))
        return replaced

    def put_grant(self, digest: str, sealed: bytes) -> None:
        """Write sealed secrets for the run of the next order, which names their digest."""
        self._store.put(f"{self.token}/grants/{digest}", sealed)

    def facts(self) -> NodeFacts | None:
        """What the agent published; None before it started. Raises Garbled."""
        return self._read("node", NodeFacts)

    def report(self) -> NodeReport | None:
        """The agent's newest report; None before the first. Raises Garbled."""
        return self._read(REPORT, NodeReport)

    # The agent's end

    def ordered(self, seen: bytes) -> tuple[bytes, Order | None]:
        """The newest order as bytes, and decoded unless the bytes equal `seen`. Raises Garbled, also if an earlier
        order is gone."""
        found = self._store.get(f"{self.token}/order", MOST_ORDER_BYTES)
        if found is None and seen:
            raise Garbled("the orders of this machine are gone: it is no longer needed")
        if found is None or found.data == seen:
            return seen, None
        return found.data, _decoded(Order, found.data)

    def claim(self, by: str) -> str:
        """Claim the channel for a machine; returns its owner."""
        key = f"{self.token}/claim"
        self._store.put_if_absent(key, by.encode())
        found = self._store.get(key, MOST_BYTES)
        return "" if found is None else found.data.decode(errors="replace")

    def grant(self, digest: str) -> bytes | None:
        """The sealed secrets with this digest; None if there are none."""
        found = self._store.get(f"{self.token}/grants/{digest}", MOST_SECRET_BYTES)
        return None if found is None else found.data

    def put_facts(self, facts: NodeFacts) -> bool:
        """Publish that the machine has started; False if another start of it was published before."""
        return self._store.put_if_absent(f"{self.token}/node", dumps(facts).encode())

    def access(self) -> bytes | None:
        """The newest sealed credentials for the store; None if there are none."""
        found = self._store.get(f"{self.token}/access", MOST_BYTES)
        return None if found is None else found.data

    def put_report(self, report: NodeReport) -> None:
        """Replace the report; nodes.crew limits its length."""
        self._store.put(self.report_key, dumps(report).encode())

    def _read(self, name: str, form: type[_T]) -> _T | None:
        try:
            found = self._store.get(f"{self.token}/{name}", MOST_BYTES)
        except UnreadableObject as error:
            raise Garbled(str(error)) from error
        return None if found is None else _decoded(form, found.data)


def control_store(root: str | Path, credentials: Credentials | None = None) -> ObjectStore:
    """The store of control objects. A request without a quick answer fails: both ends try again by themselves."""
    return open_store(root, Patience(connect_s=2.0, request_s=5.0, tries=1), credentials)


def places(token: str, nodes: int) -> tuple[str, ...]:
    """The places of the channels of a launch's machines, by rank. A single machine has the launch token as its
    place."""
    return (token,) if nodes == 1 else tuple(f"{token}/{rank}" for rank in range(nodes))


def put_run(store: ObjectStore, run_id: str, token: str, nodes: int = 1) -> None:
    """Record which machines execute a run. Raises ObjectStoreError."""
    store.put_if_absent(f"runs/{run_id}", (token if nodes == 1 else f"{token} {nodes}").encode())


def machines_of(store: ObjectStore, run_id: str) -> tuple[str, ...]:
    """The `places` of the machines that execute a run, by rank; none if no machine was asked to. Raises
    ObjectStoreError, DamagedOrder."""
    key = f"runs/{run_id}"
    found = store.get(key, MOST_BYTES)
    if found is None:
        return ()
    if (machines := _MACHINES.fullmatch(found.data)) is None:
        raise DamagedOrder(f"{store.where(key)} is damaged: it does not name the machines of a run", hint=_GIVEN_UP)
    return places(machines["token"].decode(), int(machines["nodes"] or 1))


def raise_epoch(store: ObjectStore, epoch: int) -> int:
    """Record that the control plane with this epoch gives the orders from now on, unless one with a later epoch does.
    Returns the highest recorded epoch. Raises ObjectStoreError, SiteError."""
    while True:
        found = store.get(_EPOCH, MOST_BYTES)
        known = 0 if found is None else _epoch_of(found.data, store.where(_EPOCH))
        if known >= epoch:
            return known
        data = str(epoch).encode()
        if found is None:
            store.put_if_absent(_EPOCH, data)  # read again: another control plane may have been faster
        else:
            store.put_if_match(_EPOCH, data, found.version)


def recorded_epoch(store: ObjectStore) -> int:
    """The highest epoch of any control plane that gave orders; 0 if none did. Raises ObjectStoreError, SiteError."""
    found = store.get(_EPOCH, MOST_BYTES)
    return 0 if found is None else _epoch_of(found.data, store.where(_EPOCH))


def _epoch_of(data: bytes, where: str) -> int:
    if not data.isdigit() or len(data) > MOST_EPOCH_DIGITS:
        raise SiteError(f"{where} is damaged: it is not a number", hint="delete it; the control plane writes it again")
    return int(data)


def runs_known(store: ObjectStore) -> list[str]:
    """The runs whose machine is recorded. Raises ObjectStoreError."""
    return [each.key.removeprefix("runs/") for each in store.list("runs")]


def forget_run(store: ObjectStore, run_id: str) -> None:
    """Remove the known objects of a run whose machines have ended. Raises ObjectStoreError, SiteError."""
    machines: tuple[str, ...] = ()
    with suppress(DamagedOrder):
        machines = machines_of(store, run_id)
    ordered = [order.run for order, _ in (Channel(store, place).order() for place in machines) if order is not None]
    if machines and all(run is None or run.run_id == run_id for run in ordered):  # else another attempt
        _delete_all(store, machines[0].partition("/")[0])
    store.delete(f"runs/{run_id}")


def _delete_all(store: ObjectStore, prefix: str) -> None:
    """Delete all objects under `prefix`; in a store on a disk, also the folders that become empty."""
    keys = [each.key for each in store.list(prefix)]
    store.delete(*keys)
    if not store.remote:
        for folder in sorted({prefix, *(key.rpartition("/")[0] for key in keys)}, reverse=True):  # the inner ones first
            with suppress(OSError):  # its machine has just written
                os.rmdir(store.where(folder))


def unreachable(error: ObjectStoreError) -> SiteError:
    """An error of the store as an error that is retried."""
    return SiteError(error.message, hint=error.hint)


def _decoded(form: type[_T], data: bytes) -> _T:
    try:
        return loads(form, data)
    except CodecError as error:
        raise Garbled(str(error)) from error


def _overtaken(where: str) -> SiteError:
    return SiteError(f"another control plane has changed {where}", hint="Tradewind reads it again")
