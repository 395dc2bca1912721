"""A machine as a process: an empty environment, a home of its own, and the user data that it was given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from providers.processes import kill_session

PYTHON = Path(sys.executable).parent


class Host:
    """Boots user data below `folder`. `path` is where its commands are; by default this process's Python, with all that
    is installed for it, and the system's tools."""

    def __init__(self, folder: Path, path: str | None = None) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.environment = {"HOME": str(self.home), "PATH": path or f"{PYTHON}:{os.defpath}"}
        self.console = folder / "console"
        self.process: subprocess.Popen[bytes] | None = None

    def boot(self, user_data: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start it, as a session of its own."""
        script = self.home / "user-data"
        script.write_text(user_data)
        with self.console.open("ab") as console:
            self.process = subprocess.Popen(
                ["/bin/bash", str(script)],
                env={**self.environment, **variables},
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        return self.process

    def said(self) -> str:
        """What its console shows."""
        return self.console.read_text()

    def end(self) -> None:
        """Pull the plug."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGSTOP)
            kill_session(self.process.pid)
            self.process.wait()


def in_session(session: int) -> Mapping[int, str]:
    """Pid -> command of every process of a session."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.getsid(int(pid)) == session:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if command:  # not a zombie
                    found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found
