"""Session: a TrainingLoop under Tradewind. It restores, waits for its fence, saves, and follows the control directory.

`attach` is the only function that programs call.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from trainers.checkpoint import store
from trainers.checkpoint.attached import AttachedObjects
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.reader import Loaded, load_newest, weights_hash
from trainers.checkpoint.state import Encoder, restore
from trainers.checkpoint.writer import save
from trainers.errors import FencedError, StateError, StoreThrottled, StoreUnavailable, TrainerError
from trainers.loop.cadence import Cadence
from trainers.loop.rng import capture_rng, restore_rng
from trainers.loop.training_loop import Parts, TrainingLoop
from trainers.loop.transient import Transient
from trainers.loop.unattached import UnattachedState
from trainers.process.run_context import RunContext, RunEnded, present_context
from trainers.spec import OUTPUT_VARIABLE, SPEC_VARIABLE

_POLL_S = 0.02
_OWN_ITEMS = frozenset({"given", "rng", "transient"})  # of a checkpoint, besides the parts


def attach(
    *,
    model: Any,
    optimizer: Any,
    scheduler: Any = None,
    scaler: Any = None,
    loader: Any = None,
    extra: dict[str, Any] | None = None,
    steps: int | None = None,
    epochs: int | None = None,
) -> TrainingLoop:
    """Hand the parts of a training loop to Tradewind. Call it once, after all of them are built.

    `extra`: other state to save, by name: objects with state_dict() and load_state_dict(), random number generators, or
    plain data. A resume fills the lists, dicts, tensors and arrays that were given, so other references to them stay
    valid; numbers and texts must be read from and written to the dict. Several models or optimizers go in a dict. Under
    Tradewind the job file's steps or epochs override `steps` and `epochs`. Outside ($TRADEWIND_SPEC is not set) the
    program must pass one of them and runs as a plain loop.

    Raises TrainerError, LoaderError, StateError.
    """
    parts = Parts(model, optimizer, scheduler, scaler, loader, extra)
    context = present_context()
    if context is not None:
        if context.session is not None:
            raise TrainerError("attach() was called twice", hint="call it once, with all parts")
        if context.spec.steps is not None or context.spec.epochs is not None:
            steps, epochs = context.spec.steps, context.spec.epochs
        context.session = Session(parts, steps=steps, epochs=epochs, context=context)
        return context.session
    if SPEC_VARIABLE in os.environ:
        raise TrainerError(
            "attach() was called in a process other than the one that runs the job",
            hint="call it in the process of train.entry; to start that manually: python -m trainers.runner SPEC.json",
        )
    output_dir = Path(os.environ.get(OUTPUT_VARIABLE, "."))
    return TrainingLoop(parts, steps=steps, epochs=epochs, seed=0, output_dir=output_dir)


class Session(TrainingLoop):
    """One run of a job. RunEnded ends it early."""

    def __init__(self, parts: Parts, *, steps: int | None, epochs: int | None, context: RunContext) -> None:
        self._spec = context.spec
        self._checkpoints = context.checkpoints
        self._ownership = context.ownership
        super().__init__(
            parts, steps=steps, epochs=epochs, seed=context.spec.seed, output_dir=Path(context.spec.output_dir)
        )
        self._attached = AttachedObjects(self._captured_parts())
        self._attached.require_data("extra")
        self._transient = Transient(self._captured_parts(), self._attached.tensors())
        self._unattached = UnattachedState({**self._captured_parts(), "loader": self.loader})
        self._control = context.control
        self._journal = context.journal
        self._timers = context.timers
        self._on_step = context.on_step
        self._cadence = Cadence(context.spec.max_overhead, context.timers.monotonic())
        self._restored: Loaded | None = None
        self._saved_step: int | None = None
        self._successors: set[int] = set()  # the generations for which it has waited
        self._began_s = self._began_cpu_s = 0.0  # when the current step began

    def unfinished(self) -> str | None:
        """Why a program that has returned is not finished; None if it is."""
        made_all = (
            self.total_steps is not None and self.steps_done >= self.total_steps
        )  # even if the program left the loop by itself
        if (self._done() or made_all) and self._saved_step is not None:
            return None
        of = "" if self.total_steps is None else f" of {self.total_steps}"
        return (
            f"the program ended at step {self.steps_done}{of}: iterate run.batches() to the end, or call run.stop() "
            "to stop early"
        )

    def finish(self) -> None:
        """Save and report the final state after the program has returned. Raises CheckpointError."""
        if self._saved_step is not None:
            self._require_ownership()
            self._save_once()
        digest = weights_hash(self.parts.model)
        self._journal.enter("finished", weights_hash=digest, total_steps=self.steps_done, stopped_early=self._stopped)

    def close(self) -> None:
        """Stop watching the program, however it ended."""
        self._unattached.close()

    # The hooks of TrainingLoop

    def _begin(self) -> None:
        self._attached.require_kept("extra", besides=1)  # self.parts refers to it as well
        self._transient.begin()
        self._unattached.begin()
        store.prepare(self._checkpoints, self._spec.job_id)
        self._restore(self._spec.manifest)
        self._journal.enter("restored", total_steps=self.total_steps)
        self._await_fence()
        if self._restored is not None:
            restore_rng(self._restored.items["rng"])
            self._restored = None
        self._saved_step = self.steps_done if self._journal.progress.manifest else -1
        self._cadence.since_s = self._timers.monotonic()
        self._journal.enter("training")
        self._journal.expect("step")
        self._mark()

    def _record(self, loss: float) -> None:
        self._journal.step(self.steps_done, loss)
        if self._on_step is not None:
            self._on_step(self.steps_done)

    def _between_steps(self) -> None:
        self._pace()
        self._require_ownership()
        self._unattached.step_ended(self._transient.parameters, self._captured_tensors)
        if not self._transient.step_ended():
            self._save()  # include the gradients that turned out to be in use
        if not self._done():
            self._obey()
            if self._cadence.due(self._timers.monotonic()):
                self._save_if_reachable()
        self._mark()

    def _end(self) -> None:
        self._save_once()
        self._journal.expect("end")

    # Between two steps

    def _pace(self) -> None:
        """Sleep for the rest of the step on a slower machine; by CPU time, so that a busy host does not matter."""
        cpu_s = self._timers.cpu() - self._began_cpu_s
        if self._spec.throttle < 1:
            self._timers.sleep(cpu_s * (1 / self._spec.throttle - 1))
        wall_s = self._timers.monotonic() - self._began_s
        self._cadence.stepped(wall_s)
        before = self._journal.progress
        smooth = wall_s if before.step_wall_s is None else 0.9 * before.step_wall_s + 0.1 * wall_s
        self._journal.update(step_wall_s=smooth, useful_s=before.useful_s + wall_s)

    def _mark(self) -> None:
        self._began_s, self._began_cpu_s = self._timers.monotonic(), self._timers.cpu()

    def _obey(self) -> None:
        if self._control.stop_requested():
            self._checkpoint_and_stop()
        if self._quiesced():
            self._save_once()
            self._journal.enter("quiesced")
            self._wait_while(self._quiesced)
            self._void_successors()
            self._journal.enter("training")
            self._journal.expect("step")
        notice = self._control.notice()
        if notice is not None:
            if self._cadence.save_s is None:
                self._save_once()  # saves the work at once and measures how long a save takes
            if self._notice_is_due():
                self._checkpoint_and_stop()

    def _quiesced(self) -> bool:
        quiesce = self._control.quiesce()
        if quiesce is None or self._timers.monotonic() >= quiesce.until_monotonic_s:
            return False
        self._successors.add(quiesce.successor)
        return True

    def _void_successors(self) -> None:
        """Prevent a late takeover before training continues, because nobody took the job over in time.

        The control plane may be paused just before it hands the job over. Without this, it would hand it over when it
        resumes, and everything trained since then would be lost.
        """
        spec = self._spec
        for successor in sorted(self._successors):
            if not store.void_fence(self._checkpoints, spec.job_id, successor):
                raise RunEnded("fenced")
        self._successors.clear()

    def _notice_is_due(self) -> bool:
        notice = self._control.notice()
        now = self._timers.monotonic()
        return notice is not None and self._cadence.must_end(now, notice.deadline_monotonic_s)

    def _checkpoint_and_stop(self) -> None:
        self._save_once()
        raise RunEnded("checkpointed_and_stopped")

    # Ownership

    def _require_ownership(self) -> None:
        """Raises RunEnded if a newer generation owns the job or the lease has expired."""
        self._require_lease()
        if self._ownership.generation() != self._spec.generation:
            raise RunEnded("fenced")

    def _require_lease(self) -> None:
        until = self._control.lease_until()
        if until is not None and self._timers.monotonic() >= until:
            raise RunEnded("fenced")

    def _await_fence(self) -> None:
        """Wait until the job is handed to this generation; its fence may name a different checkpoint than the spec."""
        self._wait_while(lambda: self._ownership.generation() < self._spec.generation)
        fence = store.fence(self._checkpoints, self._spec.job_id)
        if fence is None or fence.generation != self._spec.generation:
            raise RunEnded("fenced")
        restored = self._restored.name if self._restored is not None else None
        if restored is not None and restored.generation == self._spec.generation:
            return
        if fence.manifest != (str(restored) if restored is not None else None):
            if fence.manifest is None:
                raise StateError(
                    f"the fence starts the job from scratch, but {restored} was restored",
                    hint="submit it as a new job, or remove its checkpoint folder",
                )
            self._restore(fence.manifest)

    def _wait_while(self, condition: Any) -> None:
        while condition():
            self._require_lease()
            if self._ownership.generation() > self._spec.generation:
                raise RunEnded("fenced")
            if self._control.stop_requested() or self._notice_is_due():
                raise RunEnded("checkpointed_and_stopped")
            self._timers.sleep(_POLL_S)

    # Checkpoints

    def _restore(self, start: str | None) -> None:
        loaded = load_newest(self._checkpoints, self._spec.job_id, self._spec.generation, start)
        if loaded is None:
            return
        parts = self._captured_parts()
        if loaded.items.keys() != {*parts, *_OWN_ITEMS}:
            held = sorted(loaded.items.keys() - _OWN_ITEMS)
            raise StateError(
                f"checkpoint {loaded.name} has {', '.join(held)}; the program attached {', '.join(sorted(parts))}",
                hint="attach the same parts as the run that saved it",
            )
        self._transient.restore_groups(loaded.items["transient"])
        self._attached.restore(loaded.items, loaded.items["given"])
        self._transient.restore(loaded.items["transient"])
        if self.loader is not None:
            if "loader" not in loaded.position:
                raise StateError(
                    f"checkpoint {loaded.name} was saved without a loader",
                    hint="attach the parts that it was saved with",
                )
            restore(self.loader, loaded.position["loader"], "loader")
        self.epochs_done = loaded.position["epochs_done"]
        self.steps_done = loaded.name.step
        self._restored = loaded
        self._journal.update(
            step=self.steps_done,
            start_step=self.steps_done,
            manifest=str(loaded.name),
            manifest_step=loaded.name.step,
        )

    def _save_if_reachable(self) -> None:
        """Write a periodic checkpoint. If the store cannot be reached, training goes on until the next one is due."""
        try:
            self._save_once()
        except (StoreThrottled, StoreUnavailable) as error:
            sys.stderr.write(f"the checkpoint of step {self.steps_done} is postponed: {error}\n")
            self._cadence.since_s = self._timers.monotonic()

    def _save_once(self) -> None:
        """Write a checkpoint of the current step unless there is one."""
        if self._saved_step != self.steps_done:
            self._save()

    def _save(self) -> None:
        spec = self._spec
        position: dict[str, Any] = {"steps_done": self.steps_done, "epochs_done": self.epochs_done}
        if self.loader is not None:
            position["loader"] = self.loader.state_dict()
        try:
            with self._journal.saving():
                began_s = self._timers.monotonic()
                name = save(
                    self._checkpoints,
                    spec.job_id,
                    ManifestName(spec.generation, self.steps_done, spec.attempt),
                    items={
                        "given": self._attached.same(),
                        **self._attached.capture(),
                        "rng": capture_rng(),
                        "transient": self._transient.capture(),
                    },
                    position=position,
                    keep=spec.keep,
                    before_commit=self._require_lease,
                )
                ended_s = self._timers.monotonic()
        except FencedError:
            raise RunEnded("fenced") from None
        self._saved_step = self.steps_done
        self._cadence.saved(began_s, ended_s)
        spent_s = self._journal.progress.checkpoint_s + ended_s - began_s
        self._journal.update(
            manifest=str(name), manifest_step=name.step, checkpoint_s=spent_s, save_wall_s=ended_s - began_s
        )

    def _captured_tensors(self) -> list[torch.Tensor]:
        encoder = Encoder()
        encoder.encode(self._attached.capture(), "parts")
        return [tensor for _, tensor in encoder.tensors]

    def _captured_parts(self) -> dict[str, Any]:
        parts = self.parts
        named = {
            "model": parts.model,
            "optimizer": parts.optimizer,
            "scheduler": parts.scheduler,
            "scaler": parts.scaler,
            "extra": parts.extra,
        }
        return {name: part for name, part in named.items() if part is not None}
