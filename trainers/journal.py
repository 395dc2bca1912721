"""Journal: the files that a run writes: progress.json (its current state) and metrics.jsonl (one line per step)."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainers.control import LAST_STATES, Awaited, ControlDirectory, Progress, TrainerState

_PROGRESS_PERIOD_S = 0.1


class Journal:
    """The folder of one run: `<run>/control/progress.json`, `<run>/metrics.jsonl`, `<run>/log`."""

    def __init__(
        self,
        control: ControlDirectory,
        monotonic: Callable[[], float],
        mask: Callable[[str], str] = str,
        last: ControlDirectory | None = None,
    ) -> None:
        """`mask` removes the values of secrets from text. The runner sets `settle`, which waits until the log is
        written. `last`: where to write the final state, if another process publishes it.
        """
        self.mask = mask
        self.settle: Callable[[], None] = lambda: None
        self.folder = control.path.parent
        self.progress = Progress()
        self._control = control
        self._last = last or control
        self._monotonic = monotonic
        self._written_at = -math.inf
        control.path.mkdir(parents=True, exist_ok=True)
        self._metrics = _open_lines(self.folder / "metrics.jsonl")

    def enter(self, state: TrainerState, **changes: Any) -> None:
        """Change the state and publish it at once. A final state is published after the log is complete.

        Nothing is awaited until `expect` is called.
        """
        if changes.get("error") is not None:
            changes["error"] = self.mask(changes["error"])
        if state in ("finished", "failed"):
            self.settle()
        self.progress = dataclasses.replace(self.progress, state=state, still_since_s=None, **changes)
        self._write()

    def expect(self, awaited: Awaited) -> None:
        """From now on, wait for `awaited`."""
        self.progress = dataclasses.replace(self.progress, still_since_s=self._monotonic(), awaited=awaited)
        self._write()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """In this block, the end of a save is awaited; after it, what was awaited before, with a new start time."""
        before = self.progress
        self.expect("save")
        try:
            yield
        finally:
            if before.still_since_s is None:
                self.enter(self.progress.state)
            else:
                self.expect(before.awaited)

    def update(self, **changes: Any) -> None:
        """Change other fields; published within about 0.1 s of training, or with the next state."""
        self.progress = dataclasses.replace(self.progress, **changes)
        if self._monotonic() - self._written_at >= _PROGRESS_PERIOD_S:
            self._write()

    def step(self, step: int, loss: float) -> None:
        """Record a finished step. A loss that JSON cannot represent is null in `loss` and exact in `loss_hex`."""
        shown, now_s = loss if math.isfinite(loss) else None, self._monotonic()
        line = {"step": step, "loss": shown, "loss_hex": loss.hex(), "t": now_s}
        self._metrics.write(json.dumps(line) + "\n")
        not_finite = self.progress.not_finite_step
        if shown is None and not_finite is None:
            not_finite = step
        self.update(step=step, loss=shown, still_since_s=now_s, awaited="step", not_finite_step=not_finite)

    def close(self) -> None:
        """Close the metrics file."""
        self._metrics.close()

    def _write(self) -> None:
        self._written_at = self._monotonic()
        place = self._last if self.progress.state in LAST_STATES else self._control
        place.write_progress(self.progress)


def _open_lines(path: Path) -> Any:
    """Open a file for appending complete lines, each visible at once. A line truncated by a kill is ended first."""
    torn = False
    if path.exists() and path.stat().st_size:
        with path.open("rb") as existing:
            existing.seek(-1, os.SEEK_END)
            torn = existing.read() != b"\n"
    file = path.open("a", buffering=1)
    if torn:
        file.write("\n")
    return file
