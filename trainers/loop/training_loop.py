"""TrainingLoop: the training loop as the user's program sees it. It provides batches, records steps and ends.

Outside Tradewind, this is the whole loop; trainers.loop.session adds what happens between steps.
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
    """The attached parts; each has state_dict() and load_state_dict(), or is a dict of such parts."""

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

    Several batches before one `run.step` (gradient accumulation) count as one step. All ranks must take the same steps.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        steps: int | None,
        epochs: int | None,
        seed: int,
        output_dir: Path,
        world: tuple[int, int] = (0, 1),
        global_batch: int | None = None,
    ) -> None:
        """`world`: this rank and the number of ranks, which share the batches; `global_batch`: samples per step."""
        steps, epochs = _whole("steps", steps), _whole("epochs", epochs)
        if steps is None and epochs is None:
            raise TrainerError(
                "the length of the training is not given",
                hint="pass steps= or epochs= to attach(), or set train.steps in the job file",
            )
        if parts.loader is None and steps is None:
            raise TrainerError("epochs need a loader", hint="pass loader= to attach(), or steps= instead of epochs=")
        self.parts = parts
        self.loader = resumable(parts.loader, seed, *world, global_batch) if parts.loader is not None else None
        self.output_dir = output_dir
        self.steps_done = 0
        self.epochs_done = 0
        self._epochs = epochs
        self._steps = steps
        self._stopped = False
        self._handled_step: int | None = None  # None before batches() began

    @property
    def total_steps(self) -> int | None:
        """The steps of the whole job; None if only epochs were given and the loader has no length."""
        if self._epochs is None or not hasattr(self.loader, "__len__"):
            return self._steps
        of_epochs = self._epochs * len(self.loader)  # type: ignore[arg-type]
        return of_epochs if self._steps is None else min(self._steps, of_epochs)

    @property
    def accumulating(self) -> bool:
        """Whether more batches follow before the step: add up the gradients, and call neither the optimizer nor `step`.

        Only with `global_batch`; otherwise False.
        """
        return bool(getattr(self.loader, "accumulating", False))

    @property
    def weight(self) -> float:
        """The factor for the loss of the current batch, so that a step has the mean gradient of its global batch for
        any division into batches. Without `global_batch`: 1."""
        return float(getattr(self.loader, "weight", 1.0))

    def batches(self) -> Iterator[Any]:
        """The remaining batches of the job (step numbers if there is no loader).

        Everything between steps (checkpoints, pauses, the end of the run) happens when the next batch is requested, so
        the whole loop body, including what follows `run.step`, belongs to the step. A program may leave the loop and
        iterate again, which continues at the same place. Raises TrainerError if two passes over the data have no step.
        """
        if self._handled_step is None:
            self.begin()
        self._handle_step()
        idle_passes = 0  # consecutive passes without a step; one is normal after resuming at the end of an epoch
        while not self._done():
            at = self.steps_done
            for batch in self.loader if self.loader is not None else [at]:
                yield batch
                self._handle_step()
                if self._stopped or (self._steps is not None and self.steps_done >= self._steps):
                    break
            else:
                self.epochs_done += self.loader is not None
            idle_passes = idle_passes + 1 if self.steps_done == at else 0
            if idle_passes > 1:
                raise TrainerError(
                    "two passes over the data ended without a step",
                    hint="call run.step(loss) after each optimizer.step(), and check that the loader is not empty",
                )
        self._end()

    def begin(self) -> None:
        """Restore. `batches` calls this, `between` and `end`; a framework with its own loop calls them instead."""
        self._begin()
        self._handled_step = self.steps_done

    def between(self) -> bool:
        """Do the work that is due between a recorded step and the next. False if there is no next step."""
        self._handle_step()
        return not self._done()

    def end(self) -> None:
        """Complete the run after its last step."""
        self._end()

    def _handle_step(self) -> None:
        """Do the work that is due after a recorded step, once per step."""
        if self.steps_done != self._handled_step:
            self._handled_step = self.steps_done
            self._between_steps()

    def step(self, loss: Any) -> None:
        """Record one optimizer step and its loss (a number or a one-element tensor)."""
        if self.accumulating:
            raise TrainerError(
                "run.step() was called before all batches of the step were used",
                hint="end the loop body with `if run.accumulating: continue` before the optimizer's step",
            )
        value = _as_number(loss)
        self.steps_done += 1
        self._record(value)

    def stop(self) -> None:
        """End the training before its last step (early stopping): `batches()` returns no more batches."""
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
    """The number of steps or epochs passed to attach(). Raises TrainerError."""
    if value is None:
        return None
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None or not 1 <= found <= LARGEST_COUNT:
        raise TrainerError(
            f"{name}={reprlib.repr(value)} is not valid in attach()",
            hint=f"{name} must be a whole number from 1 to 2**53",
        )
    return found


def _as_number(loss: Any) -> float:
    """Raises TrainerError unless it is a number or a one-element tensor."""
    try:
        return float(loss.detach() if hasattr(loss, "detach") else loss)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = getattr(loss, "shape", None)
        kind = type(loss).__name__ if shape is None else f"{type(loss).__name__} of shape {tuple(shape)}"
        raise TrainerError(
            f"run.step(loss) takes a number or a one-element tensor, not a {kind}",
            hint="reduce it first: run.step(loss.mean())",
        ) from error
