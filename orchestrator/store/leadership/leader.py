"""Leadership: which control plane acts on this store, as a row with an epoch that fences and a beat that shows life.

No clocks are compared: a standby takes over when the beat has not moved for TAKEOVER_S of its own monotonic clock, or
at once when the holder is a dead process of its own machine. Whoever takes over raises the epoch; every transaction of
a leader checks the epoch inside the transaction, so that one which slept through its own deposition writes nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, select, update

from orchestrator.errors import NotLeaderError, UnreadableRowError
from orchestrator.store.rows import record
from orchestrator.store.schema import leader
from providers.clock import boot_id
from providers.procfs import process_start

TAKEOVER_S = 4.0
"""Wall seconds of silence after which a leader that may still live is deposed (pulse.PULSE_S: how often it beats)."""

_WATCH_S = 0.25

_LEADER = select(leader)
_BEAT = update(leader).where(leader.c.epoch == bindparam("present")).values(beat=leader.c.beat + 1)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof of having been elected; worth something only while `epoch` is the store's present one."""

    holder: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """Who leads. `alive` is None when that cannot be told from here (another machine, container or boot)."""

    holder: str
    epoch: int
    pid: int
    host: str
    since_ms: int
    alive: bool | None


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """The one row of the table. `holder` is None where nobody leads; the others then say who did last."""

    id: int
    epoch: int
    beat: int
    holder: str | None
    host: str | None
    realm: str | None
    pid: int | None
    pid_start: int | None
    since_ms: int | None


@dataclass
class Campaign:
    """What one standby has seen of the leader's beat, and when on its own clock it last saw it move."""

    _seen: tuple[int, int] | None = field(default=None, init=False)  # epoch, beat
    _moved_s: float = field(default=0.0, init=False)

    def silent_s(self, epoch: int, beat: int, now_s: float) -> float:
        """For how long the beat has stood still, as far as this standby has watched it."""
        if self._seen != (epoch, beat):
            self._seen = (epoch, beat)
            self._moved_s = now_s
        return now_s - self._moved_s


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from later ones of the same number. `realm` is where its number means something."""

    host: str
    realm: str
    pid: int
    start: int

    @classmethod
    def own(cls) -> Process:
        pid = os.getpid()
        return cls(socket.gethostname(), _realm(), pid, process_start(pid) or 0)

    def alive(self) -> bool | None:
        """None when it cannot be told from here."""
        if not self.realm or self.realm != _realm():
            return None
        return process_start(self.pid) == self.start


def current(connection: Connection) -> LeaderRow:
    """The leader's row. Raises UnreadableRowError."""
    row = record(LeaderRow, "leader", connection.execute(_LEADER).one())
    if row.holder is not None and None in (row.host, row.realm, row.pid, row.pid_start, row.since_ms):
        raise UnreadableRowError("leader", row.id, f"it does not say which process {row.holder} is")
    return row


def process_of(row: LeaderRow) -> Process:
    """The process of the leader that `row` names."""
    assert None not in (row.host, row.realm, row.pid, row.pid_start)  # `current` has looked
    return Process(str(row.host), str(row.realm), int(row.pid or 0), int(row.pid_start or 0))


def info_of(row: LeaderRow) -> LeaderInfo | None:
    """Who leads as `row` says."""
    if row.holder is None:
        return None
    process = process_of(row)
    assert row.since_ms is not None
    return LeaderInfo(row.holder, row.epoch, process.pid, process.host, row.since_ms, process.alive())


def may_take(row: LeaderRow, holder: str, campaign: Campaign, now_s: float) -> bool:
    """Whether `holder` may depose what `row` names."""
    silent_s = campaign.silent_s(row.epoch, row.beat, now_s)
    return row.holder in (None, holder) or process_of(row).alive() is False or silent_s >= TAKEOVER_S


def shows_life(read: Callable[[], object]) -> bool:
    """Whether what `read` returns changes within TAKEOVER_S: only its beat tells of a leader on another machine."""
    seen, watched_s = read(), 0.0
    while watched_s <= TAKEOVER_S:
        time.sleep(_WATCH_S)
        watched_s += _WATCH_S
        if read() != seen:
            return True
    return False


def take(connection: Connection, row: LeaderRow, holder: str, now_ms: int) -> Leadership | None:
    """Depose what `row` names, unless it moved since it was read."""
    own = Process.own()
    done = connection.execute(
        update(leader)
        .where(leader.c.epoch == row.epoch, leader.c.beat == row.beat)
        .values(
            epoch=row.epoch + 1,
            holder=holder,
            host=own.host,
            realm=own.realm,
            pid=own.pid,
            pid_start=own.start,
            since_ms=now_ms,
        )
    )
    return Leadership(holder, row.epoch + 1) if done.rowcount else None


def fence(connection: Connection, leadership: Leadership) -> None:
    """Raises NotLeaderError unless `leadership` is the present one. Call it inside the transaction that it guards."""
    row = current(connection)
    if row.epoch != leadership.epoch:
        raise NotLeaderError(
            f"{row.holder or 'nobody'} leads this store now, not {leadership.holder}",
            hint="only one control plane acts on a store; this one stands by",
        )


def beat(connection: Connection, leadership: Leadership) -> None:
    """Show life. Raises NotLeaderError."""
    if not connection.execute(_BEAT, {"present": leadership.epoch}).rowcount:
        fence(connection, leadership)


def resign(connection: Connection, leadership: Leadership) -> None:
    """Let another take over at once; nothing happens when one has already."""
    connection.execute(update(leader).where(leader.c.epoch == leadership.epoch).values(holder=None))


def _realm() -> str:
    """Two processes with the same realm see each other's numbers; empty where that cannot be told."""
    boot = boot_id()
    try:
        return "" if boot == "unknown" else f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
