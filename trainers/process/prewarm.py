"""A trainer's process before it has an order: it loads what every trainer needs, then waits for a spec to execute.

    python -m trainers.process.prewarm FOLDER

A node starts one while its site's own software comes up, because loading torch is most of a cold start. Whoever drives
it connects to `trainer.sock` in FOLDER and stays connected; lines of JSON:

    from it:  {"state": "prepared" | "failed", "error"}, and when the order has been carried out {"state", "error"}
    to it:    {"spec", "secrets"}, once

When the driver is gone, it ends at once: a run that nobody can stop must not go on. How it ended itself is written to
`trainer.exit` by whoever started it, and is read by the driver.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from trainers import checked_json
from trainers.control import TrainerState
from trainers.errors import MalformedWord
from trainers.process import same_hashes

SOCKET = "trainer.sock"
EXIT_FILE = "trainer.exit"
STACKS_SIGNAL = signal.SIGRTMAX - 5  # one that nobody else uses; trainers.runner answers it with all stacks in the log
_WORD = {
    "state": checked_json.one_of("prepared", *get_args(TrainerState)),
    "error": checked_json.maybe(checked_json.text),
}
_SO_PEERCRED = struct.Struct("iII")  # pid, uid, gid: unix(7)


@dataclass(frozen=True, slots=True)
class PrewarmReply:
    """One thing that it says; `error` is set when it failed."""

    state: str
    error: str | None = None


class Trainer:
    """The driver's end of the line. Raises OSError while there is no such process in `folder`, or no longer."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        directory = os.open(folder, os.O_PATH)
        try:  # the name of a socket must fit in 107 bytes: that of the folder may not
            self._socket.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except OSError:
            self._socket.close()
            raise
        finally:
            os.close(directory)
        listener = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _SO_PEERCRED.size)
        self._process = os.pidfd_open(_SO_PEERCRED.unpack(listener)[0])

    def words(self) -> Generator[PrewarmReply, None, None]:
        """What it says, until it is gone (a child that it forked may hold its end of the line for longer) or says too
        much at once. The job's own code runs in that process, so that it may say anything."""
        line, partial = self._socket.fileno(), b""
        with closing(self._socket):
            while line in select.select([line, self._process], [], [])[0]:
                received = self._socket.recv(1 << 16)
                if not received:
                    return
                *lines, partial = (partial + received).split(b"\n")
                yield from map(_word, lines)
                if len(partial) > checked_json.MOST_BYTES:
                    yield _word(partial)
                    return

    def show_stacks(self) -> None:
        """Let it write the stack of each of its threads to its log. Only of one that executes an order."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, STACKS_SIGNAL)

    def order(self, spec: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Let it begin; asked once."""
        self._socket.sendall(json.dumps({"spec": dict(spec), "secrets": dict(secrets)}).encode() + b"\n")


def _word(line: bytes) -> PrewarmReply:
    try:
        return PrewarmReply(
            **checked_json.fitting(checked_json.document(line, "the trainer's word"), _WORD, "the trainer's word")
        )
    except (MalformedWord, TypeError) as error:  # without a state
        return PrewarmReply("failed", f"the trainer's process said what makes no sense: {error}")


def write_exit_status(folder: Path, status: int) -> None:
    """What its parent saw: the exit status, or minus the number of the signal that killed it."""
    partial = folder / f"{EXIT_FILE}.partial"
    partial.write_text(str(status))
    partial.replace(folder / EXIT_FILE)


def exit_status(folder: Path) -> int | None:
    """What was written, None while nothing was."""
    try:
        return int((folder / EXIT_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None


def told_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"the trainer exited with status {status} without a last word"
    why = "out of memory?" if -status == signal.SIGKILL else (signal.strsignal(-status) or "unknown").lower()
    return f"the trainer was killed by signal {-status} ({why})"


def main(folder: str) -> int:
    same_hashes.require()
    os.chdir(folder)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(SOCKET)
        listener.listen(1)
        prepared = _attempt(_load)
        connection, _ = listener.accept()
    with closing(connection), connection.makefile("rw") as line:

        def say(words: Mapping[str, object]) -> None:
            line.write(json.dumps(words) + "\n")
            line.flush()

        say(prepared)
        order = line.readline()
        if order:
            with _leaving_with(connection):
                say(_carry_out(json.loads(order)))
    return 0


def _attempt(work: Callable[[], str]) -> dict[str, object]:
    try:
        return {"state": work(), "error": None}
    except BaseException:
        return {"state": "failed", "error": traceback.format_exc()}


def _load() -> str:
    gc.disable()  # looking again and again through all that is being imported takes a sixth of the time
    import torch

    # the first optimizer imports torch._dynamo and sympy: half of all the time
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])

    gc.freeze()
    gc.enable()
    return "prepared"


def _carry_out(order: Mapping[str, Any]) -> dict[str, object]:
    from trainers.process.masking import Mask
    from trainers.runner import execute
    from trainers.spec import TrainerSpec

    secrets: Mapping[str, str] = order["secrets"]
    os.environ.update(secrets)
    said = _attempt(lambda: execute(TrainerSpec.from_json(order["spec"]), secrets=secrets))
    return {**said, "error": said["error"] and Mask(secrets).text(str(said["error"]))}


@contextmanager
def _leaving_with(connection: socket.socket) -> Iterator[None]:
    """End this process as soon as the driver is gone, whatever it is doing."""
    done = threading.Event()

    def watch() -> None:
        connection.recv(1)
        if not done.is_set():
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    yield
    done.set()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
