"""The processes of one rented machine among those of a host: finds all of them, and ends them reliably.

A process belongs to an instance if it is in the instance's session, has the instance's mark, or descends from such a
process. The mark is a number that the kernel passes on through every fork, exec and setsid: the hard limit on real-time
CPU time (RLIMIT_RTTIME, getrlimit(2)), set so high that it limits nothing. A daemon that created its own session,
cleared its environment and lost its parent still has it, even after the instance's first process has ended. The
environment names the instance as well, for bash older than 5.1, which cannot set that limit. Only a program that
deliberately lowers this limit can hide. Process groups are not used: Ray gives each worker its own. A zombie counts as
ended. A pid alone does not identify a process; its start time and boot do.

Needs only the standard library: the `static` provider sends this module to hosts.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from providers.clock import boot_id
from providers.errors import SetupError, UnavailableError

ID_VARIABLE = "TRADEWIND_INSTANCE_ID"
_SOFT, _HARD = -3, -2  # columns of /proc/PID/limits
_KILL_ROUNDS = 12
_ROUND_MS = 250
_QUIET_SCANS = 2  # a scan of /proc can miss a process that starts meanwhile; the next scan finds it


@dataclass(frozen=True, slots=True)
class Leader:
    """The first process of an instance: pid = session id, start time in clock ticks since boot, and the boot id."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Process:
    """One process in /proc. `alive` is False for a zombie."""

    pid: int
    parent: int
    session: int
    start_ticks: int
    alive: bool


def is_alive(leader: Leader) -> bool:
    """True if the first process is alive. Cheap: reads one file."""
    process = _read(leader.pid)
    return (
        process is not None
        and process.alive
        and process.start_ticks == leader.start_ticks
        and leader.boot_id == boot_id()
    )


def living(instances: Mapping[str, Leader | None]) -> list[Process]:
    """All live processes of these instances (id -> first process, if known), in one pass over /proc."""
    table = {process.pid: process for process in _snapshot()}
    sessions = {
        leader.pid
        for leader in instances.values()
        if leader is not None and leader.boot_id == boot_id() and not _recycled(leader, table)
    } - {0}  # in a container, 0 is the session of all processes whose session began outside it
    named = {f"{ID_VARIABLE}={instance_id}".encode() for instance_id in instances}
    limits = {str(mark_of(instance_id)).encode() for instance_id in instances}
    ours = {
        pid
        for pid, process in table.items()
        if process.session in sessions or _is_limited(pid, limits) or _is_named(pid, named)
    }
    ours |= _descendants(ours, table)
    ours.discard(os.getpid())  # a control plane that runs on an instance must not end itself
    return [table[pid] for pid in sorted(ours) if table[pid].alive]


def signal_all(instance_id: str, leader: Leader | None, number: signal.Signals) -> None:
    """Send a signal once to every live process of an instance."""
    for process in living({instance_id: leader}):
        if (handle := _open(process)) is not None:
            _send(handle, number)
            os.close(handle)


def kill_all(instance_id: str, leader: Leader | None) -> None:
    """Send SIGKILL to every process of an instance until none is left; each end is confirmed by the kernel (pidfd).

    Raises UnavailableError that names processes that do not end (they wait for a device in the kernel).
    """
    _kill_until_none(instance_id, lambda: living({instance_id: leader}))


def kill_session(session: int) -> None:
    """Like `kill_all` for the processes of one session, except this process. The session does not have to be an
    instance."""
    _kill_until_none(f"session {session}", lambda: _of_session(session))


def mark(pid: int, name: str) -> None:
    """Mark a process of this user and all that it starts from now on, even if they detach from it.

    The mark is the soft limit on real-time CPU time, below the hard limit, which marks instances. Does nothing if the
    process has ended.
    """
    with suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_RTTIME)
        resource.prlimit(pid, resource.RLIMIT_RTTIME, (_mark_of(name), hard))


def kill_marked(name: str, *, spared: bytes = b"", spared_s: float = 0.0) -> None:
    """Like `kill_all` for the processes with this mark. Processes with `spared` in their command have this many seconds
    to end by themselves."""
    marks = {str(_mark_of(name)).encode()}

    def find() -> list[Process]:
        return [each for each in _snapshot() if each.alive and _is_limited(each.pid, marks, _SOFT)]

    def hurried() -> list[Process]:
        return [each for each in find() if not (spared and spared in _command(each.pid))]

    _kill_until_none(name, hurried)
    for process in find():
        if (handle := _open(process)) is not None:
            _await_death(handle, round(spared_s * 1000))
            os.close(handle)
    _kill_until_none(name, find)


def reap(children: set[int]) -> None:
    """Collect children of this process that have ended, and remove them from `children`."""
    for pid in tuple(children):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            children.discard(pid)


def _of_session(session: int) -> list[Process]:
    if session == 0:  # in a container, 0 is the session of all processes whose session began outside it
        return []
    own = os.getpid()
    return [each for each in _snapshot() if each.alive and each.session == session and each.pid != own]


def _kill_until_none(name: str, find: Callable[[], list[Process]]) -> None:
    quiet = 0
    for _ in range(_KILL_ROUNDS):
        found = find()
        quiet = 0 if found else quiet + 1
        if quiet == _QUIET_SCANS:
            return
        handles = [handle for process in found if (handle := _open(process)) is not None]
        try:
            for handle in handles:
                _send(handle, signal.SIGKILL)
            for handle in handles:
                _await_death(handle)
        finally:
            for handle in handles:
                os.close(handle)
    left = ", ".join(str(process.pid) for process in find())
    raise UnavailableError(
        f"processes of {name} do not end: {left}",
        hint="they wait for a device or a network file system; check their state with ps, then try again",
    )


def _recycled(leader: Leader, table: Mapping[int, Process]) -> bool:
    """True if the pid now belongs to another process. The kernel does not reuse a session's number while it has a
    member.
    """
    now = table.get(leader.pid)
    return now is not None and now.start_ticks != leader.start_ticks


def _descendants(roots: set[int], table: Mapping[int, Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found and child not in roots:
                found.add(child)
                pending.append(child)
    return found


def mark_of(instance_id: str) -> int:
    """The mark of an instance: 146,000 years of CPU time, plus microseconds unique to the instance."""
    return 1 << 62 | int.from_bytes(blake2b(instance_id.encode(), digest_size=7).digest())


def _mark_of(name: str) -> int:
    """A mark below that of every instance: at least 73,000 years of CPU time."""
    return 1 << 61 | int.from_bytes(blake2b(name.encode(), digest_size=7).digest())


def _is_limited(pid: int, limits: set[bytes], which: int = _HARD) -> bool:
    try:
        lines = Path(f"/proc/{pid}/limits").read_bytes().splitlines()
    except OSError:  # gone
        return False
    return next((line.split()[which] for line in lines if line.startswith(b"Max realtime timeout")), b"") in limits


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""  # gone


def _is_named(pid: int, names: set[bytes]) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's: not ours
        return False
    return not names.isdisjoint(environment.split(b"\0"))


def _snapshot() -> list[Process]:
    found = (_read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def _read(pid: int) -> Process | None:
    try:
        return parse(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def parse(stat: str) -> Process:
    """Parse /proc/pid/stat (proc(5)): the command name may itself contain parentheses, so count from the last one."""
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    return Process(
        pid=int(head.split()[0]),
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        alive=fields[0] not in {"Z", "X", "x"},
    )


def _open(process: Process) -> int | None:
    """A handle on exactly this process, which prevents reuse of its pid. None if it has ended."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        raise SetupError(
            f"this kernel does not support pidfd_open: {error}",
            hint="Linux 5.3 or newer is needed",
        ) from error
    now = _read(process.pid)
    if now is None or now.start_ticks != process.start_ticks:
        os.close(handle)
        return None
    return handle


def _send(handle: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):  # another user's process is reported as one that does not end
        return


def _await_death(handle: int, for_ms: int = _ROUND_MS) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll(for_ms)
