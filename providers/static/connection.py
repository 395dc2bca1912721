"""The shared connection to a host: its socket, and how it is ended.

One `ssh` process, the master, holds it. A master that is stopped (SIGSTOP) or hangs would block every later request. So
a request without an answer in time ends the connection, and kills the master if that does not end.
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
        raise SetupError(f"{folder} belongs to another user, or others can enter it", hint=f"remove {folder}")
    return folder


def hang_up(socket: Path, command: Sequence[str]) -> None:
    """End the connection: the next request makes a new one. `command` asks the master to end."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=HANG_UP_S, stdin=subprocess.DEVNULL, check=False)
    for master in _masters(socket):
        with suppress(ProcessLookupError):
            os.kill(master, signal.SIGKILL)
    socket.unlink(missing_ok=True)


def _masters(socket: Path) -> Iterator[int]:
    """The processes of this user that hold the connection. Their command line shows the connection's name."""
    title = f"ssh: {socket} [mux]".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # gone, or another user's
            if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ") == title:
                yield int(pid)
