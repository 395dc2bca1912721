"""Orders: what each machine must do, both the wanted state and the state written in the store of control objects.

The engine changes the wanted orders in memory. Threads write them: the orders of one machine one after the other, those
of different machines in parallel. They use compare-and-swap and the control plane's epoch, so a control plane that was
replaced changes nothing. An order that cannot be written is retried until a later one replaces it. The highest epoch is
kept next to the orders: a control plane on a store restored from a backup must exceed it first (`outranked_by`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from orchestrator.engine.calls import Threads
from orchestrator.errors import SiteError
from orchestrator.nodes.channel import Channel, DamagedOrder, raise_epoch, unreachable
from orchestrator.nodes.messages import Order, RunOrder
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore

PLACE = ("store", "")
RETRY_S = 1.0
TROUBLE_S = 10.0
"""An order that could not be written for this long is reported."""
FLUSH_S = 5.0

Step = Callable[[Channel], None]


class NotRead(SiteError):
    """The order of a machine is still being read."""


@dataclass(slots=True)
class _Line:
    """One machine's orders. `before` must be written before its next order; `written` is None while it must be read
    (again), and `wanted` is valid once the line `is_read`."""

    wanted: RunOrder | None = None
    is_read: bool = False
    asked: bool = False
    written: Order | None = None
    version: str = ""
    before: list[Step] = field(default_factory=list)
    busy: bool = False
    retry_s: float = -inf
    failing_s: float | None = None
    trouble: SiteError | None = None


class Orders:
    """The orders of all machines, by launch token. `expect` is called when one has been written."""

    def __init__(
        self,
        store: ObjectStore,
        lease_s: float,
        expect: Callable[[str], None],
        threads: Threads,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._lease_s, self._expect, self._threads = store, lease_s, expect, threads
        self._monotonic = monotonic
        self._epoch = self._recorded = 0
        self._lines: dict[str, _Line] = {}
        self._changing = threading.Lock()

    def lead(self, epoch: int) -> None:
        """From now on, orders are those of the control plane with this epoch. Orders that others wrote are read
        again."""
        with self._changing:
            self._epoch, self._recorded, self._lines = epoch, 0, {}

    @property
    def outranked_by(self) -> int | None:
        """The epoch of a later control plane that has given orders here; None if none is known."""
        return self._recorded if self._recorded > self._epoch else None

    def wanted(self, token: str) -> tuple[RunOrder | None, int]:
        """The run that the machine must execute, and the number of that order, which may not be written yet. Raises
        NotRead at first, and SiteError if it cannot be read."""
        line = self._line(token)
        with self._changing:
            if not line.is_read:
                raise line.trouble or NotRead(f"the order for {token} is being read", hint="Tradewind tries again")
            number = 0 if line.written is None else line.written.number
            return line.wanted, number + self._dirty(line)

    def change(
        self, token: str, change: Callable[[RunOrder | None], RunOrder | None], before: Sequence[Step] = ()
    ) -> None:
        """Order the machine to execute `change` of the present run. `before` writes what the order needs. Raises
        SiteError, and what `change` raises."""
        self.wanted(token)
        line = self._lines[token]
        with self._changing:
            line.wanted = change(line.wanted)
            line.asked = True
            line.before += before
        self._line(token)

    def unwritten(self, token: str) -> SiteError | None:
        """Why the machine's newest order could not be written for TROUBLE_S; None if it was written, or is not that
        old."""
        line = self._line(token)
        with self._changing:
            lasts = line.failing_s is not None and self._monotonic() - line.failing_s >= TROUBLE_S
            return line.trouble if lasts else None

    def forget(self, token: str) -> None:
        """Forget a machine that has ended."""
        with self._changing:
            self._lines.pop(token, None)

    @property
    def idle(self) -> bool:
        """Whether all wanted orders are written, as far as known."""
        with self._changing:
            return not any(line.busy or self._dirty(line) for line in self._lines.values())

    def close(self) -> None:
        """Wait for a limited time until the wanted orders are written."""
        give_up_s = self._monotonic() + FLUSH_S
        while not self.idle and self._monotonic() < give_up_s:
            for token in [*self._lines]:
                self._line(token)
            time.sleep(0.01)

    # -- writing ----------------------------------------------------------------------------------------------------
    def _line(self, token: str) -> _Line:
        """A machine's line, with a thread working on it if there is anything to do."""
        with self._changing:
            line = self._lines.setdefault(token, _Line())
            waits = line.busy or self._monotonic() < line.retry_s
            if waits or (line.is_read and not self._dirty(line)):
                return line
            line.busy = True
            epoch = self._epoch
        self._threads.carry("order", PLACE, lambda: self._serve(token, line, epoch))
        return line

    def _dirty(self, line: _Line) -> bool:
        if not line.asked:
            return False
        known = line.written is not None and line.version
        return (
            not known
            or line.written is None
            or (line.written.run, line.written.lease_s) != (line.wanted, self._lease_s)
        )

    def _serve(self, token: str, line: _Line, epoch: int) -> None:
        """Read a machine's order, or write until all wanted orders are written. Retries after an error."""
        channel = Channel(self._store, token)
        try:
            self._raise_epoch(epoch)
            while True:
                if line.written is None:
                    self._read(channel, line, epoch)
                with self._changing:
                    if not self._dirty(line):
                        line.failing_s, line.trouble, line.busy = None, None, False
                        return
                self._write(channel, line, epoch)
        except BaseException as error:  # the next order must be written, no matter what a library raises
            trouble = error if isinstance(error, SiteError) else _trouble(error)
            with self._changing:
                line.written = None  # it may have taken effect: read it again
                now_s = self._monotonic()
                line.failing_s = now_s if line.failing_s is None else line.failing_s
                line.trouble, line.retry_s, line.busy = trouble, now_s + RETRY_S, False

    def _raise_epoch(self, epoch: int) -> None:
        """Check the epoch, once for each epoch. Raises SiteError if a later control plane gives the orders."""
        if self._recorded < epoch:
            recorded = raise_epoch(self._store, epoch)
            with self._changing:
                if self._epoch == epoch:
                    self._recorded = recorded
        if self._recorded > epoch or self._epoch != epoch:
            raise SiteError("a later control plane gives the orders", hint="this one no longer leads")

    def _read(self, channel: Channel, line: _Line, epoch: int) -> None:
        """Read the order. If an earlier control plane wrote it, take it over, so that the earlier one can no longer
        replace it."""
        order, version = channel.order()
        if order is None:
            order = Order(0, self._lease_s)
        elif order.epoch > epoch:
            hint = "this one no longer leads; if it does, the machine has written its own order"
            raise DamagedOrder(f"a later control plane gives the orders for {channel.token}", hint=hint)
        elif order.epoch < epoch:
            order = replace(order, number=order.number + 1, epoch=epoch)
            version = channel.replace_order(order, version)
        with self._changing:
            line.written, line.version = order, version
            if not line.is_read:
                line.wanted, line.is_read = order.run, True

    def _write(self, channel: Channel, line: _Line, epoch: int) -> None:
        with self._changing:
            wanted, before, written = line.wanted, [*line.before], line.written
        assert written is not None
        for step in before:
            step(channel)
        order = Order(written.number + 1, self._lease_s, wanted, epoch)
        version = channel.replace_order(order, line.version)
        with self._changing:
            line.written, line.version = order, version
            del line.before[: len(before)]
        self._expect(channel.token)


def _trouble(error: BaseException) -> SiteError:
    if isinstance(error, ObjectStoreError):
        return unreachable(error)
    return SiteError(f"an order cannot be written: {error!r}", hint="Tradewind tries again")
