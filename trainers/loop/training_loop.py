"""TrainingLoop: the training loop as the user's program sees it: batches in, a step recorded after each, an end.

Outside Tradewind this is all there is; trainers.loop.session adds what happens between the steps.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.checked_json import LARGEST_COUNT
from trainers.data.loader import resumable
from trainers.errors import TrainerError


@dataclass(frozen=True, slots=True)
class Parts:
    """What the program attached; each has state_dict() and load_state_dict(), or is a dict of such."""

    model: Any
    optimizer: Any
    scheduler: Any = None
    scaler: Any = None
    loader: Any = None
    extra: Any = None


class TrainingLoop:
    """A training loop of `steps` steps or `epochs` passes over the loader, whichever ends first.

        run = trainers.attach(model=model, optimizer=optimizer, loader=loader, steps=1000)
        for batch in run.batches():
            loss = ...
            run.step(loss)

    Several batches may go before one `run.step` (gradient accumulation): they are one step.
    """

    def __init__(self, parts: Parts, *, steps: int | None, epochs: int | None, seed: int, output_dir: Path) -> None:
        steps, epochs = _whole("steps", steps), _whole("epochs", epochs)
        if steps is None and epochs is None:
            raise TrainerError(
                "nothing says when the training ends",
                hint="give attach() steps= or epochs=, or the job file train.steps",
            )
        if parts.loader is None and steps is None:
            raise TrainerError("epochs need a loader", hint="give attach() loader=, or steps= instead of epochs")
        self.parts = parts
        self.loader = resumable(parts.loader, seed) if parts.loader is not None else None
        self.output_dir = output_dir
        self.steps_done = 0
        self.epochs_done = 0
        self._epochs = epochs
        self._steps = steps
        self._stopped = False
        self._looked_after: int | None = None  # the step; None before batches() began

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole job; None when the loader has no length and only epochs were given."""
        if self._epochs is None or not hasattr(self.loader, "__len__"):
            return self._steps
        of_epochs = self._epochs * len(self.loader)  # type: ignore[arg-type]
        return of_epochs if self._steps is None else min(self._steps, of_epochs)

    def batches(self) -> Iterator[Any]:
        """The batches that remain of the job (step numbers when there is no loader).

        What happens between steps (checkpoints, holds, the end of the run) happens when the next one is asked for,
        so that all of the loop's body, also what follows `run.step`, belongs to the step. A program may leave the loop
        and iterate again: that goes on where it was.
        """
        if self._looked_after is None:
            self._begin()
            self._looked_after = self.steps_done
        self._look()
        fruitless = 0  # passes in a row without a step: one is usual after resuming at the end of an epoch
        while not self._done():
            at = self.steps_done
            for batch in self.loader if self.loader is not None else [at]:
                yield batch
                self._look()
                if self._stopped or (self._steps is not None and self.steps_done >= self._steps):
                    break
            else:
                self.epochs_done += self.loader is not None
            fruitless = fruitless + 1 if self.steps_done == at else 0
            if fruitless > 1:
                raise TrainerError(
                    "two passes over the data went by without a step",
                    hint="call run.step(loss) after each optimizer.step(); and the loader must not be empty",
                )
        self._end()

    def _look(self) -> None:
        """Do what is due after a recorded step, once."""
        if self.steps_done != self._looked_after:
            self._looked_after = self.steps_done
            self._between_steps()

    def step(self, loss: Any) -> None:
        """Record one optimizer step and its loss (a number or a tensor of one)."""
        self.steps_done += 1
        self._record(float(loss.detach() if hasattr(loss, "detach") else loss))

    def stop(self) -> None:
        """The training is done before its last step (early stopping): `batches()` gives no more."""
        self._stopped = True

    def _done(self) -> bool:
        enough_steps = self._steps is not None and self.steps_done >= self._steps
        return self._stopped or enough_steps or (self._epochs is not None and self.epochs_done >= self._epochs)

    def _begin(self) -> None:
        pass

    def _record(self, loss: float) -> None:
        pass

    def _between_steps(self) -> None:
        pass

    def _end(self) -> None:
        pass


def _whole(name: str, value: Any) -> int | None:
    """A number of steps or epochs as attach() was given it. Raises TrainerError."""
    if value is None:
        return None
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None or not 1 <= found <= LARGEST_COUNT:
        raise TrainerError(
            f"attach() was given {name}={reprlib.repr(value)}",
            hint=f"{name} is a whole number from 1 to 2**53",
        )
    return found
