"""Ownership: which generation owns a job; checked often, without slowing down training.

Reading a folder takes microseconds, so every check reads it. A bucket takes milliseconds, costs money per request and
may be out of reach, so a thread reads it and checks return the thread's last answer. An old answer is harmless, because
a commit reads the fence itself.
"""

from __future__ import annotations

import logging
import threading

from trainers.checkpoint import fences
from trainers.errors import DamagedCheckpoint, TrainerError
from trainers.objects.base import ObjectStore

UNHURRIED = 5  # once the run has the job, the thread asks at intervals of this many times the store's poll_s
_LOG = logging.getLogger(__name__)


class Ownership:
    """The ownership of one job in `root`, for a run of `generation`. The thread asks `followed`, the same store with
    little patience. Call close() when done."""

    def __init__(self, root: ObjectStore, job: str, generation: int, followed: ObjectStore | None = None) -> None:
        self._root, self._job, self._own = root, job, generation
        self._followed = root if followed is None else followed
        self._answers = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._known: int | DamagedCheckpoint = 0

    def generation(self) -> int:
        """The newest generation with a fence that is not void; 0 if none.

        Raises DamagedCheckpoint, and ObjectStoreError if it is not known yet.
        """
        if not self._root.remote:
            return self._read(self._root)
        if self._thread is None:
            self._known = self._read(self._root)
            self._thread = threading.Thread(target=self._follow, name="tradewind-ownership", daemon=True)
            self._thread.start()
        if isinstance(self._known, DamagedCheckpoint):
            raise self._known
        return self._known

    def answers(self) -> int:
        """How often the store has answered the thread; it rises again after an outage."""
        return self._answers

    @property
    def remote(self) -> bool:
        """Whether a thread asks the store."""
        return self._root.remote

    def close(self) -> None:
        """Stop asking."""
        self._over.set()

    def _read(self, root: ObjectStore) -> int:
        fence = fences.fence(root, self._job)
        return 0 if fence is None else fence.generation

    def _follow(self) -> None:
        while not self._over.wait(self._root.poll_s * (UNHURRIED if self._known == self._own else 1)):
            try:
                self._known = self._read(self._followed)
                self._answers += 1
            except DamagedCheckpoint as damage:
                self._known = damage
                self._answers += 1
            except TrainerError as error:
                _LOG.warning("the owner of %s is unknown at the moment: %s", self._job, error)
