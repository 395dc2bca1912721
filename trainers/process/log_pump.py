"""The log of a run that has secrets: a separate process between the run and its log file masks their values.

    python -m trainers.process.log_pump        (started by MaskedLog; its settings come over a pipe, not as arguments)

All output of the run, including C libraries and children, goes through a pipe. The process outlives the run, so that
the last output of a dying run is still written; it ends when the last writing process is gone. With a full disk, output
is lost, which the log notes, but the run never stops.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets as randomness
import select
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainers.process.masking import Mask, Stream

READY_S = 60.0
SETTLE_S = 10.0
_CHUNK_BYTES = 1 << 16
_SETTINGS = 3  # file descriptor
_PIPE_BYTES = 1 << 20


class MaskedLog:
    """The run's side: `descriptor` takes its output. Raises OSError if the log cannot be written."""

    def __init__(self, log: Path, secrets: Mapping[str, str]) -> None:
        self._word = f"<settle {randomness.token_hex(16)}>".encode()
        read, self.descriptor = os.pipe()
        self._acknowledged, acknowledge = os.pipe()
        settings_read, settings = os.pipe()
        with suppress(OSError):  # above this user's limit: a smaller pipe also works
            fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        places = ((read, 0), (acknowledge, 1), (settings_read, _SETTINGS))
        command = [sys.executable, "-m", "trainers.process.log_pump"]
        environment = {name: value for name, value in os.environ.items() if name not in secrets}
        os.posix_spawn(
            command[0], command, environment, file_actions=[(os.POSIX_SPAWN_DUP2, *place) for place in places]
        )
        for inherited in (read, acknowledge, settings_read):
            os.close(inherited)
        reported = {"log": str(log.absolute()), "secrets": dict(secrets), "word": self._word.decode()}
        with os.fdopen(settings, "wb") as file:
            file.write(json.dumps(reported).encode())
        if not self._await(READY_S):
            raise OSError(f"the log {log} cannot be written")

    def settle(self) -> None:
        """Wait until everything written before is in the file."""
        sys.stdout.flush()  # an unfinished line
        try:
            os.write(self.descriptor, self._word)
        except BrokenPipeError:
            return  # the log process was killed: output is lost, but the run can still report
        self._await(SETTLE_S)

    def _await(self, patience_s: float) -> bool:
        readable, _, _ = select.select([self._acknowledged], [], [], patience_s)
        return bool(readable) and os.read(self._acknowledged, 1) != b""


def main() -> int:
    """Copy standard input to the log with secrets masked, until its end. Returns 0."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the signals are for the run, which may still write output
    with os.fdopen(_SETTINGS, "rb") as file:
        settings = json.load(file)
    log = os.open(settings["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    writer = _Writer(log)
    mask = Mask(settings["secrets"], words=(settings["word"].encode(),))
    stream = Stream(mask, writer.write, met=_acknowledge)
    _acknowledge()
    while data := os.read(0, _CHUNK_BYTES):
        stream.feed(data)
    stream.close()
    return 0


def _acknowledge() -> None:
    with suppress(BrokenPipeError):  # the run is gone; its children may still write
        os.write(1, b".")


class _Writer:
    """Appends to the log; bytes that a full disk refuses are counted and reported once it accepts data again."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._lost = 0

    def write(self, data: bytes) -> None:
        view = memoryview(f"[{self._lost} bytes of output lost: the disk was full]\n".encode() if self._lost else b"")
        try:
            while view:
                view = view[os.write(self._log, view) :]
            self._lost = 0
            view = memoryview(data)
            while view:
                view = view[os.write(self._log, view) :]
        except OSError:
            self._lost += len(view) if self._lost == 0 else len(data)


if __name__ == "__main__":
    sys.exit(main())
