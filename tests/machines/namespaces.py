"""The kernel's namespaces: enter one for a while, and the calls that Python 3.11 does not have."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts import machines

NEW_NET, NEW_MOUNTS, NEW_PIDS, NEW_NAMES = 0x40000000, 0x00020000, 0x20000000, 0x04000000
BIND, REMOUNT, READ_ONLY, RECURSIVE, PRIVATE = 0x1000, 0x20, 0x1, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this thread (for processes: its children) into new namespaces. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str | Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError."""
    arguments = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(_libc.mount(*arguments), f"mount {source} {target}")


def bind(source: str | Path, target: str | Path, *, read_only: bool = True) -> None:
    """Show a file or folder at a second place. Raises OSError."""
    mount(str(source), target, flags=BIND | RECURSIVE)
    if read_only:
        mount("none", target, flags=REMOUNT | BIND | READ_ONLY)


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """This thread, and what it starts and opens, in the network of a process; sockets stay in it afterwards."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        _check(_libc.setns(there, NEW_NET), "setns")
        try:
            yield
        finally:
            _check(_libc.setns(before, NEW_NET), "setns")
    finally:
        os.close(before)
        os.close(there)


def why_not() -> str:
    """Why no namespaces can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network and mount namespaces need root: run as root, or in a container with --privileged"
    if machines.find() is None:
        return machines.REMEDY
    child = os.fork()
    if child == 0:
        try:
            unshare(NEW_NET | NEW_MOUNTS | NEW_PIDS)
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return "the kernel refuses new namespaces: a container needs --privileged" if status else ""
