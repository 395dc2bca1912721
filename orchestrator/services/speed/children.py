"""Short-lived processes that run a user's program on this host; everything that the program started ends with them."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from providers.errors import UnavailableError
from providers.processes import kill_marked, mark


@contextmanager
def ended_with_all(command: Sequence[str], output: IO[bytes] | int) -> Iterator[subprocess.Popen[bytes]]:
    """A process without a terminal, whose stdout and stderr go to `output`. At the end of the block it is killed, with
    everything that it started, even detached processes in other sessions."""
    name = f"trial {secrets.token_hex(8)}"
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    mark(child.pid, name)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        with suppress(UnavailableError):  # a process waiting for a device in the kernel; it has got its signal
            kill_marked(name)
