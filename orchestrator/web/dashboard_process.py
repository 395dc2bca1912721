"""The control plane's dashboard: a separate process with a low priority, so that readers never delay a tick.

Threads of the control plane could not do this: whatever their priority, they share Python's interpreter lock. The
control plane listens and passes the socket on, so that requests wait while a dead process is replaced. If the port is
in use, for example by the leading control plane while this one is a standby, it tries again. The process ends when its
input ends, which happens whenever the control plane ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from orchestrator.client import Client
from orchestrator.config import load_config
from orchestrator.errors import TradewindError, UsageError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.caller import Caller
from orchestrator.services.control_plane.lifecycle import environment_of, environment_to_keep
from orchestrator.web.serve import address_of, give_way, listen, served
from orchestrator.web.site import Site

AGAIN_S = 10.0
END_TIMEOUT_S = 5.0


@contextmanager
def beside(
    installation: Installation, port: int, say: Callable[[str], None], *, again_s: float = AGAIN_S
) -> Iterator[None]:
    """During the block, another process serves the dashboard on this port of the loopback interface. `say` gets its
    address and its messages. If it dies, or the port is in use, it tries again after `again_s` seconds. Raises
    StoreError."""
    environment = {**environment_to_keep(installation), **environment_of(installation.config)}
    process = _Replaced(port, environment, say, again_s)
    try:
        yield
    finally:
        process.end()


class _Replaced:
    """A process that serves the dashboard on a port, and is replaced if it dies."""

    def __init__(self, port: int, environment: Mapping[str, str], say: Callable[[str], None], again_s: float) -> None:
        self._port, self._environment, self._say, self._again_s = port, environment, say, again_s
        self._ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._listening: socket.socket | None = None
        try:
            self._listen()
        except UsageError as error:
            say(f"the dashboard is not running: {error}; trying the port again every {again_s:g} s")
        self._input, self._life = os.pipe()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the process."""
        self._ended.set()
        os.close(self._life)  # ends its input, also for a process that is just starting
        self._thread.join(END_TIMEOUT_S)
        if self._process is not None and self._thread.is_alive():
            self._process.kill()
            self._thread.join()
        os.close(self._input)
        if self._listening is not None:
            self._listening.close()

    def _listen(self) -> None:
        self._listening = listen("127.0.0.1", self._port)
        self._say(f"the dashboard is at {address_of(self._listening)}")

    def _keep(self) -> None:
        while self._listening is None:
            if self._ended.wait(self._again_s):
                return
            with suppress(UsageError):
                self._listen()
        descriptor = self._listening.fileno()
        while not self._ended.is_set():
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "orchestrator.web.dashboard_process", str(descriptor)],
                stdin=self._input,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(descriptor,),
                env=self._environment,
                text=True,
                errors="replace",
            )
            with self._process as process:
                for line in process.stderr or ():
                    self._say(f"dashboard: {line.rstrip()}")
            if not self._ended.is_set():
                self._say(f"the dashboard ended ({process.returncode}); restarting it in {self._again_s:g} s")
                self._ended.wait(self._again_s)


def main(descriptor: int) -> int:
    """Serve this installation's dashboard on a socket until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the control plane, which then ends this process
    give_way()
    try:
        with (
            socket.socket(fileno=descriptor) as listening,
            closing(open_installation(load_config())) as installation,
            served(Site(Client.over(installation, Caller("dashboard"))), listening),
        ):
            sys.stdin.read()
    except TradewindError as error:
        sys.stderr.write(f"{error} ({error.hint})\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
