"""What a run writes down: progress.json (its present state) and metrics.jsonl (one line per step).

Must not know: torch, why states change.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainers.control import ControlDirectory, Progress, TrainerState

_PROGRESS_PERIOD_S = 0.1


class Journal:
    """The run folder of one run: `<run>/control/progress.json`, `<run>/metrics.jsonl`, `<run>/log`."""

    def __init__(self, control: ControlDirectory, monotonic: Callable[[], float]) -> None:
        self.folder = control.path.parent
        self.progress = Progress()
        self._control = control
        self._monotonic = monotonic
        self._written_at = -math.inf
        control.path.mkdir(parents=True, exist_ok=True)
        self._metrics = _open_lines(self.folder / "metrics.jsonl")

    def enter(self, state: TrainerState, **changes: Any) -> None:
        """Change state; the world sees it at once."""
        self.progress = dataclasses.replace(self.progress, state=state, **changes)
        self._write()

    def update(self, **changes: Any) -> None:
        """Change other fields; the world sees it within about 0.1 s of training, or at the next state."""
        self.progress = dataclasses.replace(self.progress, **changes)
        if self._monotonic() - self._written_at >= _PROGRESS_PERIOD_S:
            self._write()

    def step(self, step: int, loss: float) -> None:
        """Record a finished step. A loss that JSON cannot hold is null there, and exact in `loss_hex`."""
        shown = loss if math.isfinite(loss) else None
        line = {"step": step, "loss": shown, "loss_hex": loss.hex(), "t": self._monotonic()}
        self._metrics.write(json.dumps(line) + "\n")
        self.update(step=step, loss=shown)

    def close(self) -> None:
        self._metrics.close()

    def _write(self) -> None:
        self._written_at = self._monotonic()
        self._control.write_progress(self.progress)


def _open_lines(path: Path) -> Any:
    """Open for appending whole lines, each visible at once; a line cut by a kill is ended first."""
    torn = False
    if path.exists() and path.stat().st_size:
        with path.open("rb") as existing:
            existing.seek(-1, os.SEEK_END)
            torn = existing.read() != b"\n"
    file = path.open("a", buffering=1)
    if torn:
        file.write("\n")
    return file
