"""The process that writes checkpoints while training continues; it needs neither torch nor numpy.

    python -m trainers.checkpoint.background_process SETTINGS    started by trainers.checkpoint.background

SETTINGS is the JSON of Settings; the JSON on standard input is added to the environment. Requests and answers are JSON,
one per packet of the inherited socket:

    {"room": bytes}                     -> {"room": bytes} with the file descriptor of new memory, or {"no_room": why}
    {"save": [generation, step, attempt], "at": byte, "text": [begin, end]}
                                        -> {"saved": name, "took_s": wall, "waited_s": wall, "cpu_s": CPU} or
                                           {"error": ..., "message": ..., "hint": ...} with the name of a class in
                                           trainers.errors
    {"hurry": true}                     -> no answer; earlier requests are written without a limit
    {"leave_off": true}                 -> no answer; earlier saves are answered {"left_off": true}, unless they have
                                           been committed

New memory replaces the current memory. `at` is where a state begins in it; `text` and the places of tensors are
relative to `at`. `waited_s` is the part of `took_s` spent waiting for the bandwidth limit, or for the parts of other
ranks. The process ends when its parent ends.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.checkpoint import parts, store
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.packing import Described, Values, store_tensors, write_checkpoint
from trainers.checkpoint.retention import Keep, collect
from trainers.control import ControlDirectory
from trainers.errors import FencedError, TrainerError, message_of
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store
from trainers.objects.pace import Pace
from trainers.objects.retry import Patience

MOST_BYTES = 1 << 16  # of a packet
LONGEST_MESSAGE = 4000  # characters
NICE = 5
"""Training has priority if CPUs are scarce, but the writer gets its share."""
RESERVE = 1.5
"""This many times the memory for a state must be available, so that no process is killed for lack of memory."""
_PARENT_ENDED = 1  # PR_SET_PDEATHSIG
_MEMORY_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """As in TrainerSpec, with the store's Patience. `rank` of `ranks` is the trainer's rank. `fd` is the descriptor of
    the socket, `parent` the process that starts this one: known when it is started."""

    checkpoint_root: str
    job_id: str
    keep: Keep | int
    control_dir: str
    patience: tuple[float, float, int]
    rank: int = 0
    ranks: int = 1
    max_upload_bytes_per_s: float | None = None
    fd: int = -1
    parent: int = -1

    def to_json(self) -> str:
        """The settings for the command line."""
        return json.dumps(dataclasses.asdict(self))


class _LeftOff(Exception):
    """The trainer no longer wants this checkpoint."""


class _Writer:
    def __init__(self, settings: Settings, asked: socket.socket) -> None:
        self._its, self._asked = settings, asked
        self._control = ControlDirectory(settings.control_dir)
        self._memory: mmap.mmap | None = None
        self._requests: deque[dict[str, Any]] = deque()  # received while a save was being written
        self._store: ObjectStore | None = None
        self._pace = Pace(settings.max_upload_bytes_per_s)
        self._hurried = False  # whether something waits for the current save
        self._waited_s = 0.0  # in the current save, for the limit or other ranks

    def serve(self) -> None:
        """Answer requests until the trainer closes its end."""
        while (request := self._next()) is not None:
            if "room" in request:
                self._make_room(request["room"])
            elif "save" in request:
                self._hurried = "hurry" in request
                self._tell(self._saved(request))

    def _next(self) -> dict[str, Any] | None:
        """The next request; None if the trainer has closed its end."""
        return self._requests.popleft() if self._requests else self._received()

    def _received(self) -> dict[str, Any] | None:
        packet = self._asked.recv(MOST_BYTES)
        return json.loads(packet) if packet else None

    def _go_on(self, size_bytes: int = 0) -> None:
        """Wait until `size_bytes` more may be written. Raises _LeftOff if the trainer has abandoned the checkpoint."""
        began_s = until_s = time.monotonic()
        paced = not self._hurried and (wait_s := self._pace.wait_s(size_bytes, began_s)) > 0
        if paced:
            until_s += wait_s
        while select.select([self._asked], [], [], max(0.0, until_s - time.monotonic()))[0]:
            request = self._received()
            if request is None or "leave_off" in request:
                for each in self._requests:
                    each["left_off"] = True
                raise _LeftOff
            if "hurry" in request:
                self._hurried, until_s = True, began_s
                for each in self._requests:
                    each["hurry"] = True
            else:
                self._requests.append(request)
        if paced:
            self._waited_s += time.monotonic() - began_s

    def _make_room(self, size: int) -> None:
        self._memory = None
        if (available := available_bytes()) is not None and size * RESERVE > available:
            self._tell({"no_room": f"a copy of the state takes {size >> 20} MiB, {available >> 20} MiB are available"})
            return
        fd = os.memfd_create("tradewind-checkpoint")
        try:
            os.posix_fallocate(fd, 0, size)
            self._memory = mmap.mmap(fd, size, prot=mmap.PROT_READ)
            socket.send_fds(self._asked, [json.dumps({"room": size}).encode()], [fd])
        except OSError as error:
            self._tell({"no_room": error.strerror})
        finally:
            os.close(fd)

    def _saved(self, request: dict[str, Any]) -> dict[str, Any]:
        began_s, began_cpu_s, self._waited_s = time.monotonic(), time.process_time(), 0.0
        try:
            if "left_off" in request:
                raise _LeftOff
            name = self._write(ManifestName(*request["save"]), request["at"], *request["text"])
        except _LeftOff:
            return {"left_off": True}
        except Exception as error:
            said = (error.message, error.hint) if isinstance(error, TrainerError) else (message_of(error), "")
            message, hint = (each[:LONGEST_MESSAGE] for each in said)
            return {"error": type(error).__name__, "message": message, "hint": hint}
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        return {"saved": str(name), "took_s": took_s, "waited_s": self._waited_s, "cpu_s": cpu_s}

    def _write(self, name: ManifestName, at: int, begin: int, end: int) -> ManifestName:
        assert self._memory is not None
        view = memoryview(self._memory)[at:]
        state = json.loads(bytes(view[begin:end]))

        def tensors() -> Iterator[Values]:
            for path, dtype, shape, first, last in state["tensors"]:
                yield Values(path, dtype, tuple(shape), view[first:last])

        its = self._its
        if self._store is None:
            self._store = open_store(its.checkpoint_root, Patience(*its.patience))
        if its.ranks > 1:
            return self._write_part(self._store, name, state, tensors())
        described = Described(*(state[each] for each in ("items", "position", "versions", "about", "frozen")))
        return write_checkpoint(
            self._store,
            its.job_id,
            name,
            described,
            tensors(),
            keep=its.keep,
            before_chunk=self._go_on,
            before_commit=self._may_commit,
        )

    def _write_part(
        self, root: ObjectStore, name: ManifestName, state: dict[str, Any], tensors: Iterator[Values]
    ) -> ManifestName:
        """Store the part of this rank; on rank 0, wait for the other parts and commit."""
        job, rank, ranks, attempt = self._its.job_id, self._its.rank, self._its.ranks, state["part"]["attempt"]
        entries = store_tensors(root, job, name.generation, tensors, self._go_on, state["frozen"])
        part = parts.part_of(state["items"], state["position"], entries)
        if rank != 0:
            store.settle_chunks(root, job)
            self._may_commit()
            parts.put_part(root, job, name, rank, attempt, part)
            return name
        plan = parts.Shares.from_json(state["part"]["plan"])
        waits_s, waited_s = time.monotonic(), self._waited_s
        wait_s = parts.patience_s(plan, self._its.max_upload_bytes_per_s)
        others = parts.await_parts(root, job, name, ranks, attempt, self._go_on, wait_s)
        self._waited_s = waited_s + time.monotonic() - waits_s
        manifest = parts.assembled(job, name, plan, [part, *others], state["versions"], state["about"])
        self._may_commit()
        committed = store.commit(root, manifest)
        parts.delete_parts(root, job, name)
        collect(root, job, name.generation, self._its.keep)
        return committed

    def _may_commit(self) -> None:
        self._go_on()
        until = self._control.lease_until()
        if until is not None and time.monotonic() >= until:
            raise FencedError("the lease of this machine has expired", hint="another machine may have the job")

    def _tell(self, answer: dict[str, Any]) -> None:
        self._asked.send(json.dumps(answer).encode())


def available_bytes() -> int | None:
    """The available memory of this system, or its container; None if unknown."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) << 10)
    except (OSError, ValueError):
        pass
    for limit, used in _MEMORY_LIMITS:
        try:
            found.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no cgroup, or "max"
            continue
    return min(found, default=None)


def _keep(value: Any) -> Keep | int:
    return value if isinstance(value, int) else Keep(*value)


def main() -> None:
    """See the module."""
    settings = json.loads(sys.argv[1])
    its = Settings(**{**settings, "patience": tuple(settings["patience"]), "keep": _keep(settings["keep"])})
    ctypes.CDLL(None).prctl(_PARENT_ENDED, signal.SIGKILL)
    if os.getppid() != its.parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the trainer ends this process
    os.nice(NICE)
    os.environ.update(json.load(sys.stdin))
    with socket.socket(fileno=its.fd) as asked:
        _Writer(its, asked).serve()


if __name__ == "__main__":
    main()
