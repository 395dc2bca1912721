"""Leadership: which control plane acts on this store, as one row with an epoch (fencing token) and a heartbeat counter.

No clocks are compared. A standby takes over when the heartbeat has not moved for TAKEOVER_S of its own monotonic clock,
or at once when the holder is a dead process on the same machine. A takeover raises the epoch, and every transaction of
a leader checks the epoch inside the transaction: a deposed leader that was paused cannot write when it resumes.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from orchestrator.errors import NotLeaderError, UnreadableRowError
from orchestrator.store.rows import record
from orchestrator.store.schema import leader, meta
from providers.clock import boot_id
from providers.procfs import process_start

TAKEOVER_S = 4.0
"""Wall seconds without a heartbeat after which a leader that may still be alive is deposed (see pulse.PULSE_S)."""

_WATCH_S = 0.25
_SERVED = "served-file"

_LEADER = select(leader)
_BEAT = update(leader).where(leader.c.epoch == bindparam("present")).values(beat=leader.c.beat + 1)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof of election; valid only while `epoch` is the store's current one."""

    holder: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """The leader. `alive` is None if unknown, because it runs on another machine, in another container or boot.
    `serves`: the other file that it serves, if this store is a copy of that file."""

    holder: str
    epoch: int
    pid: int
    host: str
    since_ms: int
    alive: bool | None
    serves: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """The one row of the table. `holder` is None if there is no leader; the other fields then describe the last one."""

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
    """The last heartbeat that a standby has seen, and when it changed by the standby's own clock."""

    _seen: tuple[int, int] | None = field(default=None, init=False)  # epoch, beat
    _moved_s: float = field(default=0.0, init=False)

    def silent_s(self, epoch: int, beat: int, now_s: float) -> float:
        """Seconds since the heartbeat last changed while this standby was watching."""
        if self._seen != (epoch, beat):
            self._seen = (epoch, beat)
            self._moved_s = now_s
        return now_s - self._moved_s


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified by start time, so that a later one with the same pid differs. Pids are valid in `realm`."""

    host: str
    realm: str
    pid: int
    start: int

    @classmethod
    def own(cls) -> Process:
        """The calling process."""
        pid = os.getpid()
        return cls(socket.gethostname(), _realm(), pid, process_start(pid) or 0)

    def alive(self) -> bool | None:
        """True if it is running; None if it is in another realm."""
        if not self.realm or self.realm != _realm():
            return None
        return process_start(self.pid) == self.start


def current(connection: Connection) -> LeaderRow:
    """The leader's row. Raises UnreadableRowError."""
    row = record(LeaderRow, "leader", connection.execute(_LEADER).one())
    if row.holder is not None and None in (row.host, row.realm, row.pid, row.pid_start, row.since_ms):
        raise UnreadableRowError("leader", row.id, f"the process of {row.holder} is missing")
    return row


def process_of(row: LeaderRow) -> Process:
    """The leader's process in `row`."""
    assert None not in (row.host, row.realm, row.pid, row.pid_start)  # checked by `current`
    return Process(str(row.host), str(row.realm), int(row.pid or 0), int(row.pid_start or 0))


def info_of(row: LeaderRow) -> LeaderInfo | None:
    """The leader in `row`, or None."""
    if row.holder is None:
        return None
    process = process_of(row)
    assert row.since_ms is not None
    return LeaderInfo(row.holder, row.epoch, process.pid, process.host, row.since_ms, process.alive())


def serves(connection: Connection, file: str | None) -> str | None:
    """The file that the leader serves, if it differs from `file`: a copy names the leader of its original."""
    found = connection.execute(select(meta.c.value).where(meta.c.key == _SERVED)).scalar_one_or_none()
    if file is None or found is None or str(found).split(":")[:2] == file.split(":")[:2]:
        return None
    return str(found).split(":", 2)[-1]


def may_take_over(row: LeaderRow, holder: str, campaign: Campaign, now_s: float) -> bool:
    """True if `holder` may depose the leader in `row`. `now_s` is of its monotonic clock."""
    silent_s = campaign.silent_s(row.epoch, row.beat, now_s)
    return row.holder in (None, holder) or process_of(row).alive() is False or silent_s >= TAKEOVER_S


def shows_life(read: Callable[[], object]) -> bool:
    """True if the result of `read` changes within TAKEOVER_S: a remote leader shows life only by its heartbeat."""
    seen, watched_s = read(), 0.0
    while watched_s <= TAKEOVER_S:
        time.sleep(_WATCH_S)
        watched_s += _WATCH_S
        if read() != seen:
            return True
    return False


def take_over(connection: Connection, row: LeaderRow, holder: str, now_ms: int, file: str | None) -> Leadership | None:
    """Makes `holder` the leader of the store in `file`, unless `row` changed since it was read (None)."""
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
    if not done.rowcount:
        return None
    connection.execute(delete(meta).where(meta.c.key == _SERVED))
    if file is not None:
        connection.execute(insert(meta).values(key=_SERVED, value=file))
    return Leadership(holder, row.epoch + 1)


def fence(connection: Connection, leadership: Leadership) -> None:
    """Raises NotLeaderError unless `leadership` is current. Call it inside the transaction that it guards."""
    row = current(connection)
    if row.epoch != leadership.epoch:
        now = f"the leader is now {row.holder}" if row.holder else "it has no leader now"
        raise NotLeaderError(
            f"{leadership.holder} no longer leads this store; {now}",
            hint="only one control plane acts on a store; this one is now a standby",
        )


def beat(connection: Connection, leadership: Leadership) -> None:
    """Sends a heartbeat. Raises NotLeaderError."""
    if not connection.execute(_BEAT, {"present": leadership.epoch}).rowcount:
        fence(connection, leadership)


def outrank(connection: Connection, leadership: Leadership, epoch: int) -> None:
    """Gives leadership up so that the next leader's epoch is higher than `epoch`. Raises NotLeaderError."""
    fence(connection, leadership)
    newest = max(epoch, leadership.epoch)
    connection.execute(
        update(leader)
        .where(leader.c.epoch == leadership.epoch)
        .values(epoch=newest, beat=leader.c.beat + 1, holder=None)
    )


def resign(connection: Connection, leadership: Leadership) -> None:
    """Gives leadership up so that another control plane can take over at once; does nothing if one already has."""
    connection.execute(update(leader).where(leader.c.epoch == leadership.epoch).values(holder=None))


def _realm() -> str:
    """Boot id and pid namespace: processes with the same realm see each other's pids. Empty if unknown."""
    boot = boot_id()
    try:
        return "" if boot == "unknown" else f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
