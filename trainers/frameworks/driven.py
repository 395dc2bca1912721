"""DrivenLoop: a training loop whose steps a framework makes; after each step, it does Tradewind's work."""

from __future__ import annotations

from typing import Any

from trainers.loop.rng import capture_rng, restore_rng
from trainers.loop.training_loop import TrainingLoop


class DrivenLoop:
    """For a run that `attach` has returned. Call `begin` before the first step, `stepped` after each, `end` at the
    end."""

    def __init__(self, run: TrainingLoop) -> None:
        self.run = run
        self._generators: dict[str, Any] = {}

    def begin(self) -> None:
        """Restore the newest checkpoint, and wait until this run has the job."""
        self.run.begin()
        self.keep_generators()

    def keep_generators(self) -> None:
        """Remember the states of the random number generators."""
        self._generators = capture_rng()

    def restore_generators(self) -> None:
        """Undo the draws since the states were remembered: a resumed run may draw other numbers there."""
        restore_rng(self._generators)

    def stepped(self, loss: Any) -> bool:
        """Call this after a step. False if the run has made all its steps. Raises RunEnded if the run must end."""
        self.run.step(loss)
        return self.run.between()

    def end(self) -> None:
        """Call this after the last step."""
        self.run.end()
