"""Facts about processes from Linux's /proc; pid and start time together identify a process within one boot."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (proc(5), field 22); None if it has ended or is a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in {"Z", "X", "x"} else int(fields[19])


def process_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger, until it is continued."""
    fields = _stat(pid)
    return fields is not None and fields[0] in {"T", "t"}


def _stat(pid: int) -> list[str] | None:
    """The fields of a process in proc(5), from the third, its state, on; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()  # the command name may itself contain parentheses


def own_children() -> set[int]:
    """The processes that this one started, in any of its threads: Linux lists them by thread (proc(5), `children`)."""
    found = set[int]()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def holders(path: Path) -> dict[int, str]:
    """The other processes that have the file open, by pid, and their commands; those of other users are not visible."""
    file = path.stat()
    found = dict[int, str]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is of another user
            if int(process.name) != os.getpid() and any(map(partial(_is, file), (process / "fd").iterdir())):
                found[int(process.name)] = _command(process)
    return found


def _is(file: os.stat_result, descriptor: Path) -> bool:
    with suppress(OSError):  # it was closed meanwhile
        return os.path.samestat(file, descriptor.stat())
    return False


def _command(process: Path) -> str:
    words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    return shlex.join(word.decode(errors="replace") for word in words)
