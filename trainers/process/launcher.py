"""Runs this machine's processes of a run with several: starts them, collects their output and ends them together.

The process that has loaded torch forks one child per rank, so that no child loads it again. Each child executes the
spec like a single process (trainers.runner). The parent copies their output to the run's log with the rank before each
line. When one child dies, it ends the others, and then publishes the final report (trainers.process.verdict): at that
time, the log has all output of the ranks.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import multiprocessing.util
import os
import selectors
import signal
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, NoReturn

from trainers.control import EXIT_CODES, ControlDirectory, Progress, TrainerState
from trainers.errors import MalformedMessage
from trainers.process.masking import Mask, Stream
from trainers.process.prewarm import STACKS_SIGNAL
from trainers.process.ranks import Rank, ranks_of
from trainers.process.verdict import RankEnd, verdict
from trainers.spec import TrainerSpec

GRACE_S = 5.0  # from SIGTERM, or from the stop of another rank, to SIGKILL
_CHUNK_BYTES = 1 << 16
_LAST_LINES = 20  # of a rank that died, in the report
_LONGEST_LINE = 500  # bytes of each
_PR_SET_PDEATHSIG = 1  # prctl(2)


def launch(
    spec: TrainerSpec,
    run_rank: Callable[[Rank], TrainerState],
    *,
    secrets: Mapping[str, str] = MappingProxyType({}),
    grace_s: float = GRACE_S,
) -> TrainerState:
    """Run this machine's ranks to their ends and publish the final report; returns its state.

    `run_rank` executes one rank in its process. Raises TrainerError for an impossible spec, and OSError if the run
    folder cannot be written.
    """
    ranks = ranks_of(spec)
    control = ControlDirectory(spec.control_dir)
    control.path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        log = stack.enter_context((control.path.parent / "log").open("ab", buffering=0))
        mask = Mask(secrets)
        crew = _Crew(grace_s)
        stack.callback(crew.end)
        for rank in ranks:
            (rank.folder / "control").mkdir(parents=True, exist_ok=True)
            (rank.folder / "control" / "progress.json").unlink(missing_ok=True)
            crew.start(rank, run_rank, mask, log)
        with _stacks_of(crew):
            ends = crew.watch()
        shown = _progress(control.path) or Progress()
        final = verdict(ends, shown)
        if final.error is not None:
            log.write(
                f"{final.error.splitlines()[0]}\n".encode(errors="backslashreplace")
            )  # the log already has the rest
        control.write_progress(final)
    return final.state


@dataclass(slots=True)
class _Child:
    rank: Rank
    pid: int
    handle: int  # pidfd
    output: int  # the reading end of its standard output and error
    lines: _Lines
    stream: Stream
    by_us: bool = False
    reaped: bool = False


class _Crew:
    """The child processes and their output."""

    def __init__(self, grace_s: float) -> None:
        self.children: list[_Child] = []
        self._grace_s = grace_s
        self._selector = selectors.DefaultSelector()
        self._ends: list[RankEnd] = []
        self._kill_at: float | None = None

    def start(self, rank: Rank, run_rank: Callable[[Rank], TrainerState], mask: Mask, log: IO[bytes]) -> None:
        """Fork the process of a rank."""
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _become(rank, write, parent, run_rank)
        os.close(write)
        os.set_blocking(read, False)
        lines = _Lines(f"[rank {rank.rank}] ".encode(), log)
        child = _Child(rank, pid, os.pidfd_open(pid), read, lines, Stream(mask, lines.write))
        self.children.append(child)
        self._selector.register(child.handle, selectors.EVENT_READ, child)
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def watch(self) -> list[RankEnd]:
        """Follow all children until they end; returns the ends in order of time."""
        while len(self._ends) < len(self.children):
            left_s = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
            for key, _ in self._selector.select(left_s):
                child: _Child = key.data
                if key.fd == child.handle:
                    self._reap(child)
                elif not child.reaped:  # otherwise its output was already copied to the end
                    self._copy(child)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)
                self._kill_at = None
        return self._ends

    def end(self) -> None:
        """End all children, in any case."""
        for child in self.children:
            if not child.reaped:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
            os.close(child.handle)
            os.close(child.output)
        self._selector.close()

    def show_stacks(self) -> None:
        """Make every rank write the stacks of its threads to its output."""
        for child in self.children:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.handle, STACKS_SIGNAL)

    def _copy(self, child: _Child) -> bool:
        """Copy some output; False if there is none now."""
        try:
            data = os.read(child.output, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(child.output)
            return False
        child.stream.feed(data)
        return True

    def _reap(self, child: _Child) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        child.reaped = True
        self._selector.unregister(child.handle)
        if child.output in self._selector.get_map():
            while self._copy(child):  # its own child may keep the pipe open longer; do not wait for that
                pass
        child.stream.close()
        child.lines.close()
        if child.output in self._selector.get_map():
            self._selector.unregister(child.output)
        end = RankEnd(child.rank, status, _progress(child.rank.folder / "control"), child.by_us, child.lines.tail())
        self._ends.append(end)
        if end.state == "finished":
            return
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s
        if end.state in ("failed", "died"):
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to every child that still runs."""
        for child in self.children:
            if not child.reaped and not _has_ended(child.pid):  # otherwise it ended by itself
                child.by_us = True
                signal.pidfd_send_signal(child.handle, number)


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _Lines:
    """Writes complete lines to the log, each with a prefix, and remembers the last ones."""

    def __init__(self, mark: bytes, log: IO[bytes]) -> None:
        self._mark, self._log = mark, log
        self._partial = b""
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)

    def write(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _CHUNK_BYTES:
            lines.append(self._partial)
            self._partial = b""
        if lines:
            self._last.extend(line[-_LONGEST_LINE:] for line in lines)
            with suppress(OSError):  # a full disk loses output; it must not stop the run
                self._log.write(b"".join(self._mark + line + b"\n" for line in lines))

    def close(self) -> None:
        """Write the last line even if it is incomplete."""
        if self._partial:
            self.write(b"\n")

    def tail(self) -> str:
        return b"\n".join(self._last).decode(errors="replace")


def _become(rank: Rank, output: int, parent: int, run_rank: Callable[[Rank], TrainerState]) -> NoReturn:
    """Run a forked child; it must never return to the code of its parent."""
    status = 1
    try:
        _forget_exit_handlers()
        signal.signal(STACKS_SIGNAL, signal.SIG_IGN)  # until the runner handles it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.close(output)
        with open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False) as text:
            sys.stdout = sys.stderr = text
            status = EXIT_CODES.get(run_rank(rank), 1)
            _run_exit_handlers()
    except BaseException:
        with suppress(BaseException):
            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(status)


def _forget_exit_handlers() -> None:
    """Forget the parent's exit handlers, such as the removal of its temporary folders: only the parent runs them."""
    atexit._clear()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    # Loaded libraries registered these; they apply to objects that this process will create.
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    atexit.register(logging.shutdown)
    atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined]


def _run_exit_handlers() -> None:
    """Do what Python does at the end of a process: join threads, then call the atexit handlers."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


@contextmanager
def _stacks_of(crew: _Crew) -> Iterator[None]:
    """Pass STACKS_SIGNAL on to the ranks."""
    before = signal.signal(STACKS_SIGNAL, lambda *_: crew.show_stacks())
    try:
        yield
    finally:
        signal.signal(STACKS_SIGNAL, before)


def _progress(folder: Path) -> Progress | None:
    try:
        return ControlDirectory(folder).progress()
    except MalformedMessage:
        return None
