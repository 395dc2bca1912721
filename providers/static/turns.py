"""Turns: the requests of one user to a host are carried out one after the other.

A request that is stopped or hangs would block all later ones. So the request that holds the lock leaves its name in the
lock file, and a waiting request kills it once it has taken longer than any request does. A request can be killed at any
point: the next one completes its work. Part of what the `static` provider sends to hosts.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from providers.clock import boot_id
from providers.processes import Leader, is_alive, parse

LONGEST_S = 60.0
PATIENCE_S = 20.0
"""The caller waits a little longer (providers.static.ssh.CALL_S), so it receives the reason."""
LOOK_S = 2.0
_NAME_BYTES = 128  # a fixed length: overwritten in place, also on a full disk


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Hold the lock. Raises TimeoutError if another request holds it for PATIENCE_S."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait(lock)
        with suppress(OSError):
            os.pwrite(lock, _own_name().encode().ljust(_NAME_BYTES), 0)
        yield
    finally:
        os.close(lock)


def _wait(lock: int) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not _locked_within(lock, LOOK_S):
        holder = _named(os.pread(lock, _NAME_BYTES, 0).decode(errors="replace"))
        known = holder is not None and is_alive(holder)
        if holder is not None and known and _age_s(holder) > LONGEST_S:
            with suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
        if time.monotonic() > give_up_s:
            which = f"process {holder.pid}" if holder is not None and known else "a process"
            raise TimeoutError(f"another request is busy there ({which})")


def _locked_within(lock: int, for_s: float) -> bool:
    def expired(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expired)
    try:
        signal.setitimer(signal.ITIMER_REAL, for_s)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return True
    except TimeoutError:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _own_name() -> str:
    own = parse(Path("/proc/self/stat").read_text())
    return f"{own.pid} {own.start_ticks} {boot_id()}"


def _named(name: str) -> Leader | None:
    words = name.split()
    return Leader(int(words[0]), int(words[1]), words[2]) if len(words) == 3 and words[0].isdigit() else None


def _age_s(process: Leader) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.start_ticks / os.sysconf("SC_CLK_TCK")
