"""A trainer process without a job: it loads the libraries that every trainer needs, then waits for a spec to execute.

    python -m trainers.process.prewarm FOLDER [DESCRIPTOR]

A node starts one while its site's software starts, because loading torch is most of a cold start. The driver connects
to `trainer.sock` in FOLDER and stays connected. Messages are lines of JSON:

    from the process:  {"state": "prepared" | "failed", "error"}, and {"state", "error"} when the run has ended
    to the process:    {"spec", "secrets"}, once; optionally {"setup", "secrets"} first, answered like the preparation

A job with its own environment cannot use the loaded libraries: after the set-up, this process is replaced by that
environment's Python, which loads its own libraries and inherits the connection to the driver as DESCRIPTOR.

When the driver disconnects, the process ends at once: a run that cannot be stopped must not continue. The parent
process writes its exit status to `trainer.exit`, which the driver reads.
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
from trainers.errors import MalformedMessage, SetupError
from trainers.process import same_hashes

SOCKET = "trainer.sock"
EXIT_FILE = "trainer.exit"
STACKS_SIGNAL = signal.SIGRTMAX - 5  # unused elsewhere; trainers.runner writes all stacks to the log when it arrives
_MESSAGE = {
    "state": checked_json.one_of("prepared", *get_args(TrainerState)),
    "error": checked_json.optional(checked_json.text),
}
_SO_PEERCRED = struct.Struct("iII")  # pid, uid, gid: unix(7)


@dataclass(frozen=True, slots=True)
class PrewarmReply:
    """A message from the process; `error` is set if it failed."""

    state: str
    error: str | None = None


class Trainer:
    """The driver's connection. Raises OSError if there is no such process in `folder`."""

    def __init__(self, folder: Path) -> None:
        directory = os.open(folder, os.O_PATH)
        self._socket = socket.socket(socket.AF_UNIX)
        try:  # the path of a socket is limited to 107 bytes, which the folder's path may exceed
            self._socket.connect(f"/proc/self/fd/{directory}/{SOCKET}")
            listener = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _SO_PEERCRED.size)
            self._process = os.pidfd_open(_SO_PEERCRED.unpack(listener)[0])
        except OSError:
            self._socket.close()
            raise
        finally:
            os.close(directory)

    def messages(self) -> Generator[PrewarmReply, None, None]:
        """The messages of the process, until it is gone (a forked child may keep the connection open longer) or sends
        too much at once.

        The job's code runs in that process, so a message may contain anything.
        """
        line, partial = self._socket.fileno(), b""
        with closing(self._socket):
            while line in select.select([line, self._process], [], [])[0]:
                received = self._socket.recv(1 << 16)
                if not received:
                    return
                *lines, partial = (partial + received).split(b"\n")
                yield from map(_message, lines)
                if len(partial) > checked_json.MOST_BYTES:
                    yield _message(partial)
                    return

    def show_stacks(self) -> None:
        """Make the process write the stack of every thread to its log. Only while it executes a spec."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, STACKS_SIGNAL)

    def set_up(self, setup: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Make the process set up the environment of a job (trainers.spec.SetupSpec) and restart there; call this
        before `order`. Raises OSError.
        """
        self._socket.sendall(json.dumps({"setup": dict(setup), "secrets": dict(secrets)}).encode() + b"\n")

    def order(self, spec: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Send the spec and start it; only once. Raises OSError."""
        self._socket.sendall(json.dumps({"spec": dict(spec), "secrets": dict(secrets)}).encode() + b"\n")


def _message(line: bytes) -> PrewarmReply:
    try:
        return PrewarmReply(
            **checked_json.fitting(
                checked_json.document(line, "the trainer's message"), _MESSAGE, "the trainer's message"
            )
        )
    except (MalformedMessage, TypeError) as error:  # without a state
        return PrewarmReply("failed", f"the trainer's process sent an invalid message: {error}")


def write_exit_status(folder: Path, status: int) -> None:
    """Store the exit status, or minus the number of the signal that ended the process. Raises OSError."""
    partial = folder / f"{EXIT_FILE}.partial"
    partial.write_text(str(status))
    partial.replace(folder / EXIT_FILE)


def exit_status(folder: Path) -> int | None:
    """The stored exit status; None if there is none yet."""
    try:
        return int((folder / EXIT_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None


def describe_exit(status: int, process: str = "the trainer") -> str:
    """An exit status in words."""
    if status >= 0:
        early = "; its program may have called os._exit() or exec" if status == 0 else ""
        return f"{process} exited with status {status} without a final report{early}"
    why = "out of memory?" if -status == signal.SIGKILL else (signal.strsignal(-status) or "unknown").lower()
    return f"{process} was killed by signal {-status} ({why})"


def main(folder: str) -> int:
    """Prepare, accept one driver and execute its spec. Returns 0."""
    same_hashes.require()
    os.chdir(folder)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(SOCKET)
        listener.listen(1)
        prepared = _attempt(_load)
        connection, _ = listener.accept()
    return _serve(folder, connection, prepared)


def resume_in_environment(folder: str, descriptor: str) -> int:
    """Entry point in the environment of a job: prepare again and continue with the inherited driver connection. Returns
    0.
    """
    os.chdir(folder)
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    return _serve(folder, connection, _attempt(_load))


def _serve(folder: str, connection: socket.socket, prepared: Mapping[str, object]) -> int:
    with closing(connection), connection.makefile("rw") as line:

        def send(words: Mapping[str, object]) -> None:
            line.write(json.dumps(words) + "\n")
            line.flush()

        send(prepared)
        order = json.loads(line.readline() or "null")
        if order is not None and "setup" in order:
            send(_set_up(folder, order, connection))
        elif order is not None:
            with _leaving_with(connection):
                send(_carry_out(order))
    return 0


def _set_up(folder: str, asked: Mapping[str, Any], connection: socket.socket) -> dict[str, object]:
    """Replace this process with one in the environment of the job. Returns only on failure."""
    from trainers.process.environment import Builder, named_errors
    from trainers.process.log_pump import MaskedLog
    from trainers.spec import SetupSpec

    setup, secrets = SetupSpec.from_json(asked["setup"]), asked["secrets"]

    def driver_gone() -> bool:
        return bool(select.select([connection], [], [], 0.0)[0])  # the driver sends nothing until it gets an answer

    def build_and_restart() -> str:
        path = Path(setup.log)
        with named_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            masked = MaskedLog(path, secrets) if secrets else None
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            log = os.open(path, flags, 0o666) if masked is None else masked.descriptor
        try:
            environment = Builder(Path(setup.root), log, driver_gone).environment(setup, secrets)
        finally:
            if masked is not None:
                masked.settle()
            os.close(log)
        for kept in (connection.fileno(), environment.lock):
            os.set_inheritable(kept, True)
        python = str(environment.python)
        command = [python, "-m", "trainers.process.prewarm", folder, str(connection.fileno())]
        os.execve(python, command, environment.variables(os.environ))

    return _masked(_attempt(build_and_restart), secrets)


def _masked(reply: dict[str, object], secrets: Mapping[str, str]) -> dict[str, object]:
    from trainers.process.masking import Mask

    return {**reply, "error": reply["error"] and Mask(secrets).text(str(reply["error"]))}


def _attempt(work: Callable[[], str]) -> dict[str, object]:
    try:
        return {"state": work(), "error": None}
    except SetupError as error:
        return {"state": "failed", "error": str(error)}
    except SystemExit:
        raise
    except BaseException:
        return {"state": "failed", "error": traceback.format_exc()}


def _load() -> str:
    gc.disable()  # collecting garbage during imports takes a sixth of the time
    import torch

    # the first optimizer imports torch._dynamo and sympy, which takes half of the time
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])

    gc.freeze()
    gc.enable()
    return "prepared"


def _carry_out(order: Mapping[str, Any]) -> dict[str, object]:
    from trainers.runner import run
    from trainers.spec import TrainerSpec

    secrets: Mapping[str, str] = order["secrets"]
    os.environ.update(secrets)
    return _masked(_attempt(lambda: run(TrainerSpec.from_json(order["spec"]), secrets=secrets)), secrets)


@contextmanager
def _leaving_with(connection: socket.socket) -> Iterator[None]:
    """End this process as soon as the driver disconnects, at any point."""
    done = threading.Event()

    def watch() -> None:
        connection.recv(1)
        if not done.is_set():
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    yield
    done.set()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 2 else resume_in_environment(*sys.argv[1:]))
