"""HeadKeeper: starts one head of this host's site when it is needed, and ends it when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

from orchestrator.config.private import append_privately
from orchestrator.engine.site.environment import (
    Head,
    SiteFiles,
    alive,
    ask_to_end,
    end_head,
    end_session,
    ray_environment,
    writing,
)
from orchestrator.engine.site.head import ENDED, TAKEN
from orchestrator.errors import SiteError

START_S = 60.0
START_ATTEMPTS = 3
RETRY_S = 10.0  # the pause after START_ATTEMPTS failures
TAKEN_PAUSE_S = 0.5
RELEASED_S = 10.0  # a head that was asked to end is not used for so long: after that, it has refused


class HeadKeeper:
    """Starts the head in the background, and again after it died; several keepers of a site start one head. The head
    gets `environment`."""

    def __init__(self, files: SiteFiles, environment: Mapping[str, str] = os.environ) -> None:
        self._files = files
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0
        self._failures = 0
        self._not_before = 0.0
        self._released: Head | None = None
        self._released_until = 0.0

    def head(self) -> Head | None:
        """The living head; None while one starts (perhaps because of this call). Raises SiteError if none starts."""
        head, now = self._files.read_head(), time.monotonic()
        if head is not None and alive(head):
            self._failures = 0
            return None if head == self._released and now < self._released_until else head
        if self._child is not None:
            if self._child.poll() is None and now < self._deadline:
                return None
            self._collect(self._child, head, now)
        if now < self._not_before:
            if self._failures == 0:
                return None
            raise SiteError(
                f"Ray's head did not start in {START_ATTEMPTS} attempts",
                hint=f"the reason is in {self._files.folder / 'head.log'}",
            )
        self._failures %= START_ATTEMPTS
        self._start(head, now)
        return None

    def release(self) -> None:
        """Ask the head to end, which it does unless a node is joined. Does not wait; idempotent."""
        head = self._files.read_head()
        if head is not None and alive(head):
            self._released, self._released_until = head, time.monotonic() + RELEASED_S
            ask_to_end(head)
        elif self._child is not None and self._child.poll() is not None:
            self._collect(self._child, head, time.monotonic())

    def end(self) -> None:
        """End the head and every process of its session. Idempotent."""
        if self._child is not None:
            end_session(self._child.pid)
            self._child.wait()
            self._child = None
        if (head := self._files.read_head()) is not None:
            end_head(head)
        self._files.head_path.unlink(missing_ok=True)

    def _collect(self, child: subprocess.Popen[bytes], head: Head | None, now: float) -> None:
        """Clean up a child that did not become the head, or was it until now."""
        self._child = None
        end_session(child.pid)
        code = child.wait()
        if code == TAKEN:
            self._not_before = now + TAKEN_PAUSE_S  # another keeper's head is about to start
        elif code != ENDED and (head is None or head.pid != child.pid):
            self._failures += 1
            if self._failures == START_ATTEMPTS:
                self._not_before = now + RETRY_S

    def _start(self, dead: Head | None, now: float) -> None:
        if dead is not None:
            end_head(dead)
        folder, temp_dir = str(self._files.folder), str(self._files.temp_dir)
        with writing(self._files.folder):
            self._files.prepare()
            log = append_privately(self._files.folder / "head.log")
        with log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.engine.site.head", folder, temp_dir],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**self._environment, **ray_environment(self._files)},
            )
        self._deadline = now + START_S
