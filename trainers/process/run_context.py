"""RunContext: connects the runner with the session in the same process, and lets a session end the program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainers.checkpoint.ownership import Ownership
from trainers.control import ControlDirectory, TrainerState
from trainers.journal import Journal
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience
from trainers.process.ranks import Rank
from trainers.spec import TrainerSpec

if TYPE_CHECKING:
    from trainers.loop.session import Session
    from trainers.process.own_folder import OwnFolder


LASTING = Patience(least_s=300.0)
"""For requests that a run needs: restoring, its last checkpoint, and the one that its successor waits for."""
HURRIED = Patience(connect_s=3.0, request_s=10.0, tries=2)
"""For requests that training does not need at once: periodic saves."""


@dataclass(frozen=True, slots=True)
class Timers:
    """The clocks of a run in seconds, replaceable in tests."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    cpu: Callable[[], float] = time.process_time
    wall: Callable[[], float] = time.time  # noqa: TID251 - trainers do not know the providers' clock


@dataclass(slots=True)
class RunContext:
    """One run: its spec, control directory, journal and clocks, and its session once the program has called attach().

    `own` is the folder of a program's own checkpoints, in the process that stores it. `rank` is set in a run of several
    processes. `leaving` is the final state of a program without a session that is being ended
    (trainers.process.unmanaged).
    """

    spec: TrainerSpec
    control: ControlDirectory
    journal: Journal
    timers: Timers
    rank: Rank | None = None
    session: Session | None = None
    own: OwnFolder | None = None
    leaving: TrainerState | None = None
    on_step: Callable[[int], None] | None = None
    process_group: object = None  # of torch, held until the end (trainers.process.unmanaged)
    _checkpoints: ObjectStore | None = None
    _hurried: ObjectStore | None = None
    _ownership: Ownership | None = None

    @property
    def checkpoints(self) -> ObjectStore:
        """The spec's `checkpoint_root`, open. Raises ObjectStoreError."""
        if self._checkpoints is None:
            self._checkpoints = open_store(self.spec.checkpoint_root, LASTING)
        return self._checkpoints

    @property
    def hurried(self) -> ObjectStore:
        """The same store with little patience. Raises ObjectStoreError."""
        if self._hurried is None:
            self._hurried = open_store(self.spec.checkpoint_root, HURRIED)
        return self._hurried

    @property
    def ownership(self) -> Ownership:
        """The ownership of the job. Raises ObjectStoreError."""
        if self._ownership is None:
            self._ownership = Ownership(self.checkpoints, self.spec.job_id, self.spec.generation, self.hurried)
        return self._ownership

    @property
    def max_upload_bytes_per_s(self) -> float | None:
        """This process's share of the bandwidth that the machine may use for checkpoints while training continues."""
        limit = self.spec.max_upload_bytes_per_s
        return None if limit is None else limit / self.spec.processes

    @property
    def leads(self) -> bool:
        """Whether this is the run's only process on its machine, or the first one."""
        return self.rank is None or self.rank.local_rank == 0

    def close(self) -> None:
        """Stop the threads and processes of the run, after any kind of end."""
        if self.session is not None:
            self.session.close()
        if self._ownership is not None:
            self._ownership.close()


class RunEnded(BaseException):
    """Ends the program from inside its loop. It is not an Exception, so the program does not catch it; the runner
    reports `state`.
    """

    def __init__(self, state: TrainerState) -> None:
        super().__init__(state)
        self.state = state


_open: RunContext | None = None


@contextmanager
def opened(context: RunContext) -> Iterator[None]:
    """Make `context` available to `attach` in this block."""
    global _open  # noqa: PLW0603  (one program per process, and attach() has no argument for it)
    _open = context
    try:
        yield
    finally:
        _open = None
        context.close()


def present_context() -> RunContext | None:
    """The context of the run in this process; None if there is none."""
    return _open
