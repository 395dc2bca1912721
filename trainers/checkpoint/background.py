"""Checkpoints that are written while training continues, in two phases (CheckFreq: Mohan et al., FAST 2021, sec. 4).

The state is copied to memory (trainers.checkpoint.staging); training waits only for this copy. A process of lower
priority, started once, hashes the copy, stores it and commits it (trainers.checkpoint.background_process).

    background.begin(name, captured)    False: not now; write it at once instead, or try again later
    background.ended()                  the results of checkpoints that have ended

If this is not possible (too little memory, or the process cannot be started), `begin` says so once on standard error
and returns False from then on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from trainers import errors
from trainers.checkpoint.background_process import MOST_BYTES, Settings
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.staging import ALIGNED, Layout, Staging
from trainers.checkpoint.writer import encoded
from trainers.errors import CheckpointError, StoreUnavailable, TrainerError, message_of

_TO_START = ("LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH")
"""The variables that Python needs. Variables that mark the processes of a machine are kept as well."""


class Snapshot(NamedTuple):
    """The saved state: the items by component, the position in the data, and the paths of tensors that do not
    change."""

    items: Mapping[str, Any]
    position: Any
    frozen: Collection[str] = ()


Captured = Callable[[], Snapshot]
ENDED = "the process that writes checkpoints has ended"


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a checkpoint: its committed name, or why there is none (`error`; None: it was abandoned).

    In seconds: training waited for `held_s`; the checkpoint was durable after `took_s`, without the waits for a
    bandwidth limit, for other ranks and for earlier checkpoints; it took `cpu_s` of CPU in addition to the training.
    """

    begun: ManifestName
    name: ManifestName | None
    error: TrainerError | None = None
    held_s: float = 0.0
    took_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Begun:
    name: ManifestName
    slot: int
    held_s: float


class Background:
    """Writes the checkpoints of one process to `settings.checkpoint_root`. At most `most` are in progress at a time,
    each in its own part of the memory; they are written one after the other. Call close() when done."""

    def __init__(self, settings: Settings, *, most: int = 1, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._most, self.monotonic = settings, most, monotonic
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._memory: Staging | None = None
        self._room = False  # whether memory was requested
        self._answers: deque[dict[str, Any]] = deque()  # for the waiting checkpoints
        self._waiting: list[_Begun] = []  # the first is being written
        self._hurried = False  # whether all waiting checkpoints are to be written without a limit
        self._impossible = False

    @property
    def under_way(self) -> list[ManifestName]:
        """The checkpoints in progress, the oldest first."""
        return [each.name for each in self._waiting]

    @property
    def full(self) -> bool:
        """Whether the limit of checkpoints in progress is reached."""
        return len(self._waiting) >= self._most

    @property
    def possible(self) -> bool:
        """Whether `begin` may still succeed, now or later."""
        return not self._impossible

    @property
    def ready(self) -> bool:
        """Whether `begin` may succeed now, as far as known; memory may still be missing."""
        self._receive(wait=False)
        return not (self._impossible or self.full or self._room)

    def begin(self, name: ManifestName, captured: Captured, about: Mapping[str, float] = MappingProxyType({})) -> bool:
        """Copy the state that `captured` returns, to be committed under `name` with the numbers `about` it.
        False if this is not possible now. Raises StateError."""
        if not self.ready:
            return False
        began_s = self.monotonic()
        described, tensors = encoded(*captured(), about=about)
        layout = Layout.of(dataclasses.asdict(described), tensors)
        if not self.has_room(layout):
            return False
        self.hold(name, layout, began_s)
        return True

    def has_room(self, layout: Layout) -> bool:
        """Whether a state fits into the memory; otherwise memory is requested, and it may fit later."""
        if self._memory is None or self._share < layout.end:
            self._ask_room((layout.room + ALIGNED) * self._most)
            return False
        return True

    def hold(self, name: ManifestName, layout: Layout, began_s: float) -> None:
        """Copy a state that fits, to be committed under `name`; training waits since `began_s`."""
        assert self._memory is not None
        slot = min({*range(self._most)} - {each.slot for each in self._waiting})
        at = slot * self._share
        self._memory.hold(layout, at)
        self._waiting.append(_Begun(name, slot, self.monotonic() - began_s))
        self._hurried = False
        self._ask({"save": dataclasses.astuple(name), "at": at, "text": [layout.text_at, layout.end]})

    @property
    def _share(self) -> int:
        return 0 if self._memory is None else self._memory.size // self._most // ALIGNED * ALIGNED

    def ended(self, *, wait: bool = False) -> list[Ended]:
        """The results of checkpoints that have ended since the last call, in order; `wait`: of all in progress."""
        found = []
        self._receive(wait=False)
        if wait:
            self.hurry()
        while self._waiting and (self._answers or wait or self._socket is None):
            if not self._answers and self._socket is not None:
                self._receive(wait=True)
                continue
            answer = self._answers.popleft() if self._answers else {}
            found.append(self._result(self._waiting.pop(0), answer))
        return found

    def hurry(self) -> None:
        """Write the checkpoints in progress without a bandwidth limit, because they will soon be needed."""
        if not self._hurried and self._waiting:
            self._hurried = True
            self._ask({"hurry": True})

    def leave_off(self) -> list[Ended]:
        """Abandon the checkpoints in progress, quickly: at most one more chunk is written. Returns what has ended."""
        if self._waiting:
            self._ask({"leave_off": True})
        return self.ended(wait=True)

    def close(self) -> None:
        """End the process, even if it is writing."""
        if self._process is not None:
            self._process.kill()
        self._forget()

    def _ask_room(self, size: int) -> None:
        """Request memory, unless the current memory is in use; `begin` fails until there is more."""
        if not self._waiting and self._started():
            self._memory = None
            self._ask({"room": size})
            self._room = True

    # The process

    def _started(self) -> bool:
        if self._process is not None:
            return True
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = dataclasses.replace(self._settings, fd=theirs.fileno(), parent=os.getpid())
        # -P: the folder of the job's code must not replace modules
        command = [sys.executable, "-P", "-m", "trainers.checkpoint.background_process", settings.to_json()]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, env=_environment()
                )
                # The other variables may contain secrets, and /proc shows the initial environment of a process.
                assert self._process.stdin is not None
                with suppress(BrokenPipeError), self._process.stdin as rest:
                    rest.write(json.dumps(dict(os.environ)).encode())
            except OSError as error:
                ours.close()
                self.give_up(message_of(error))
                return False
        self._socket = ours
        return True

    def give_up(self, why: str) -> None:
        """`begin` returns False from now on; says why, once."""
        if self._impossible:
            return
        sys.stderr.write(f"training waits while checkpoints are written, from now on: {why}\n")
        self._impossible = True
        self.close()

    def _forget(self) -> None:
        """The process has ended, and the memory that it created is gone."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.wait()
        self._process = self._socket = self._memory = None
        self._room = False

    def _ask(self, request: dict[str, Any]) -> None:
        with suppress(OSError):  # it has ended: its answer will be missing
            if self._socket is not None:
                self._socket.send(json.dumps(request).encode())

    def _receive(self, *, wait: bool) -> None:
        """Read the available answers; `wait` for at least one."""
        while self._socket is not None and (wait or select.select([self._socket], [], [], 0)[0]):
            wait = False
            try:
                packet, fds, _, _ = socket.recv_fds(self._socket, MOST_BYTES, 1)
            except OSError:
                packet, fds = b"", []
            answer: dict[str, Any] = json.loads(packet) if packet else {"no_room": ENDED}
            if fds:
                self._take(fds[0], answer["room"])
            elif "no_room" in answer:
                self.give_up(answer["no_room"])
            else:
                self._answers.append(answer)

    def _take(self, fd: int, size: int) -> None:
        self._room = False
        try:
            self._memory = Staging(fd, size)
        except OSError as error:
            self.give_up(message_of(error))

    def _result(self, begun: _Begun, answer: dict[str, Any]) -> Ended:
        if "saved" in answer:
            name, took_s = ManifestName.parse(answer["saved"]), begun.held_s + answer["took_s"] - answer["waited_s"]
            return Ended(begun.name, name, None, begun.held_s, took_s, answer["cpu_s"])
        if "left_off" in answer:
            return Ended(begun.name, None, None, begun.held_s)
        if not answer:
            return Ended(begun.name, None, StoreUnavailable(ENDED), begun.held_s)
        kind = getattr(errors, answer["error"], None)
        if isinstance(kind, type) and issubclass(kind, TrainerError):
            return Ended(begun.name, None, kind(answer["message"], hint=answer["hint"]), begun.held_s)
        return Ended(begun.name, None, CheckpointError(f"{answer['error']}: {answer['message']}"), begun.held_s)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _TO_START or name.startswith("TRADEWIND_")}
