"""The connection to a host that requests share: its socket, and its end.

One `ssh` process, the master, holds it. A master that was stopped (SIGSTOP), or hangs, would keep every later request
waiting: so a request that was not answered in time ends the connection, and kills a master that does not end it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from providers.errors import SetupError

HANG_UP_S = 2.0


def folder_of_sockets() -> Path:
    """A private folder with a short path: that of a socket has at most 107 bytes. Raises SetupError."""
    folder = Path(tempfile.gettempdir(), f"tradewind-ssh-{os.geteuid()}")
    if len(os.fsencode(folder)) > 50:
        folder = Path("/tmp", folder.name)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise SetupError(f"{folder} belongs to somebody else, or others can enter it", hint=f"remove {folder}")
    return folder


def hang_up(socket: Path, command: Sequence[str]) -> None:
    """End the connection: the next request makes a new one. `command` asks the master to."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=HANG_UP_S, stdin=subprocess.DEVNULL, check=False)
    for master in _masters(socket):
        with suppress(ProcessLookupError):
            os.kill(master, signal.SIGKILL)
    socket.unlink(missing_ok=True)


def _masters(socket: Path) -> Iterator[int]:
    """The processes of this user that hold the connection. They name it in place of their command."""
    title = f"ssh: {socket} [mux]".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # gone, or another user's
            if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ") == title:
                yield int(pid)
