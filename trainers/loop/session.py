"""Session: a TrainingLoop under Tradewind. It restores, waits for its fence, saves, and follows the control directory.

`attach` is the only function that programs call.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from trainers.checkpoint import store
from trainers.checkpoint.attached import AttachedObjects
from trainers.checkpoint.background import Snapshot
from trainers.checkpoint.fetched import restored_from
from trainers.checkpoint.frozen import frozen
from trainers.checkpoint.layouts import Layouts
from trainers.checkpoint.reader import Loaded, load_newest, weights_hash
from trainers.checkpoint.state import Encoder, restore
from trainers.checkpoint.views import is_sharded
from trainers.errors import StateError, TrainerError
from trainers.loop.cadence import Cadence
from trainers.loop.peers import Seen, peers_of, world
from trainers.loop.rng import capture_rng, restore_rng, seed_all
from trainers.loop.same_model import explained
from trainers.loop.saves import Saves
from trainers.loop.summing import sum_in_rank_order
from trainers.loop.training_loop import Parts, TrainingLoop
from trainers.loop.transient import Transient
from trainers.loop.unattached import UnattachedState
from trainers.process.run_context import RunContext, RunEnded, present_context
from trainers.spec import OUTPUT_VARIABLE, SPEC_VARIABLE

_POLL_S = 0.02
_NEEDED = {
    "gradients": "the saving processes held different gradients that their optimizers had not used yet",
    "position": "the saving processes were at different places in their data",
}
"""State that only the same number of processes can continue, and why."""
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
    global_batch: int | None = None,
) -> TrainingLoop:
    """Pass the parts of a training loop to Tradewind. Call it once, after all parts are built.

    `extra`: other state to save, by name: objects with state_dict() and load_state_dict(), random number generators, or
    plain data. A resume fills the given lists, dicts, tensors and arrays, so other references to them stay valid;
    numbers and text must be read from and written to the dict. Put several models or optimizers in a dict. Under
    Tradewind, the job file's steps or epochs override `steps` and `epochs`. Outside Tradewind ($TRADEWIND_SPEC is not
    set), the program must pass one of them and runs as a plain loop.

    In a program of several ranks, each rank calls it after torch.distributed.init_process_group() with its own parts. A
    model in DistributedDataParallel is saved like the model inside; the ranks share each batch of the loader.

    `global_batch`: the number of samples that all processes together use in a step, for any number of processes and any
    batch_size of the loader. The loop gets a step that is too large for one batch in several batches: see
    `accumulating` and `weight` of TrainingLoop.

    Raises TrainerError, LoaderError, StateError.
    """
    parallel = list(_parallel(model))
    parts = Parts(_unwrapped(model), optimizer, scheduler, scaler, loader, extra)
    context = present_context()
    if context is not None:
        if context.session is not None:
            raise TrainerError("attach() was called twice", hint="call it once, with all parts")
        if context.spec.steps is not None or context.spec.epochs is not None:
            steps, epochs = context.spec.steps, context.spec.epochs
        context.session = Session(parts, steps=steps, epochs=epochs, context=context, global_batch=global_batch)
        if context.spec.deterministic and context.spec.world_size > 2:  # the order does not matter for two
            for each in parallel:
                sum_in_rank_order(each)
        return context.session
    if SPEC_VARIABLE in os.environ:
        raise TrainerError(
            "attach() was called in a process other than the one that runs the job",
            hint="call it in the process of train.entry; to start that manually: python -m trainers.runner SPEC.json",
        )
    output_dir = Path(os.environ.get(OUTPUT_VARIABLE, "."))
    return TrainingLoop(
        parts, steps=steps, epochs=epochs, seed=0, output_dir=output_dir, world=world(), global_batch=global_batch
    )


def _parallel(model: Any) -> Iterator[DistributedDataParallel]:
    for each in model.values() if isinstance(model, Mapping) else [model]:
        if isinstance(each, DistributedDataParallel):
            yield each


def _unwrapped(model: Any) -> Any:
    """The model, or dict of models, without DistributedDataParallel."""
    if isinstance(model, Mapping) and any(_parallel(model)):
        return {name: _unwrapped(each) for name, each in model.items()}
    return model.module if isinstance(model, DistributedDataParallel) else model


class Session(TrainingLoop):
    """One run of a job. RunEnded ends it early."""

    def __init__(
        self,
        parts: Parts,
        *,
        steps: int | None,
        epochs: int | None,
        context: RunContext,
        global_batch: int | None = None,
    ) -> None:
        self._spec = context.spec
        self._checkpoints = context.checkpoints
        self._ownership = context.ownership
        self._peers = peers_of(context)
        super().__init__(
            parts,
            steps=steps,
            epochs=epochs,
            seed=context.spec.seed,
            output_dir=Path(context.spec.output_dir),
            world=(self._peers.rank, self._peers.size),
            global_batch=global_batch,
        )
        self._attached = AttachedObjects(self._captured_parts())
        self._attached.require_data("extra")
        self._transient = Transient(self._captured_parts(), self._attached.tensors())
        self._unattached = UnattachedState({**self._captured_parts(), "loader": self.loader})
        self._control = context.control
        self._journal = context.journal
        self._timers = context.timers
        self._on_step = context.on_step
        self._cadence = Cadence(context.spec.max_overhead, context.timers.monotonic(), billed=self._ownership.remote)
        self._saves = Saves(context, self._peers, self._cadence, self._captured)
        self._restored: Loaded | None = None
        self._weights_hash: str | None = None
        self._successors: set[int] = set()  # the generations for which this run has waited
        self._too_late = False  # for a checkpoint, before the machine is taken away
        self._rewrite = False  # the newest checkpoint lacks gradients that are in use
        self._began_s = self._began_cpu_s = 0.0  # when the current step began

    def unfinished(self) -> str | None:
        """Why a program that has returned is not finished; None if it is finished."""
        made_all = (
            self.total_steps is not None and self.steps_done >= self.total_steps
        )  # even if the program left the loop itself
        if (self._done() or made_all) and self._saves.step is not None:
            return None
        of = "" if self.total_steps is None else f" of {self.total_steps}"
        return (
            f"the program ended at step {self.steps_done}{of}: iterate run.batches() to the end, or call run.stop() "
            "to stop early"
        )

    def finish(self) -> None:
        """Save and report the final state after the program has returned. Raises CheckpointError."""
        if self._saves.step is not None:
            if self._peers.rank == 0:
                self._require_ownership(self._look())
            self._saves.once(self.steps_done)
        digest = self._weights_hash or weights_hash(self.parts.model)
        self._journal.enter("finished", weights_hash=digest, total_steps=self.steps_done, stopped_early=self._stopped)

    def close(self) -> None:
        """Stop watching the program and writing, for any kind of end."""
        self._unattached.close()
        self._saves.close()

    # The hooks of TrainingLoop

    def _begin(self) -> None:
        self._attached.require_kept("extra", besides=1)  # self.parts refers to it as well
        self._transient.begin()
        self._unattached.begin()
        if self._peers.rank == 0:
            store.prepare(self._checkpoints, self._spec.job_id)
        self._restore(self._spec.manifest)
        self._journal.enter("restored", total_steps=self.total_steps)
        self._await_fence()
        if self._restored is not None:
            self._restore_generators(self._restored)
            self._restored = None
        self._saves.step = self.steps_done if self._journal.progress.manifest else -1
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
        self._saves.follow_up()
        seen = self._look() if self._peers.meets(self.steps_done) else None
        if seen is not None and self._peers.size == 1:
            self._require_ownership(seen)
        self._unattached.step_ended(self._transient.parameters, self._captured_tensors)
        self._rewrite |= not self._transient.step_ended()
        if seen is not None:
            seen.rewrite = self._rewrite
            self._follow(self._agreed(seen))
        self._mark()

    def _end(self) -> None:
        self._saves.once(self.steps_done)
        if any(map(is_sharded, self._transient.parameters())):  # now, because its process group may be gone later
            self._weights_hash = weights_hash(self.parts.model)
        self._journal.expect("end")

    # Between two steps

    def _pace(self) -> None:
        """Sleep for the rest of the step on a slower machine; by CPU time, so that a busy host has no effect."""
        cpu_s = self._timers.cpu() - self._began_cpu_s
        if self._spec.throttle < 1:
            self._timers.sleep(cpu_s * (1 / self._spec.throttle - 1))
        wall_s = self._timers.monotonic() - self._began_s
        self._cadence.stepped(wall_s, beside=self._saves.under_way)
        before = self._journal.progress
        smooth = wall_s if before.step_wall_s is None else 0.9 * before.step_wall_s + 0.1 * wall_s
        self._journal.update(step_wall_s=smooth, useful_s=before.useful_s + wall_s)

    def _mark(self) -> None:
        self._began_s, self._began_cpu_s = self._timers.monotonic(), self._timers.cpu()

    def _look(self) -> Seen:
        """What this rank sees now. The first rank of a machine reads its orders; rank 0 the owner of the job and when
        to save."""
        seen, now = Seen(save_over=self._saves.over()), self._timers.monotonic
        if self._peers.rank == 0:
            seen.generation = self._ownership.generation()
            self._cadence.risk = self._control.risk()
            seen.save_due = self._saves.due()
        if self._peers.leads:
            control = self._control
            until, quiesce, notice = control.lease_until(), control.quiesce(), control.notice()
            seen.lease_over = until is not None and now() >= until
            seen.stop = control.stop_requested()
            if quiesce is not None and now() < quiesce.until_monotonic_s:
                seen.successor = quiesce.successor
            seen.warned = control.warned()
            if seen.warned:
                seen.save_due = self._saves.warned() or seen.save_due
            seen.noticed = notice is not None
            if notice is not None and self._cadence.must_end(now(), notice.deadline_monotonic_s):
                seen.notice_due = True
                seen.late_ms = math.ceil(1000 * self._cadence.late_s(now(), notice.deadline_monotonic_s))
        return seen

    def _agreed(self, seen: Seen) -> Seen:
        """The combined view of all ranks. Every rank must call this after the same step."""
        return self._peers.agree(seen, self.steps_done, self._journal.progress.step_wall_s or 0.0)

    def _follow(self, seen: Seen) -> None:
        """Do what is due after a step."""
        self._require_ownership(seen)
        if seen.save_over:
            self._saves.follow_up_together()
        if seen.rewrite:
            self._saves.now(self.steps_done)
        if self._done():
            return
        if seen.stop:
            self._checkpoint_and_stop()
        if seen.successor >= 0:
            self._saves.once(self.steps_done)
            self._journal.enter("quiesced")
            seen = self._wait_while(self._quiesced, seen)
            self._void_successors()
            self._journal.enter("training")
            self._journal.expect("step")
        if seen.warned or seen.noticed:
            self._saves.hurry()
        if seen.noticed:
            if self._cadence.save_s is None:
                self._saves.once(self.steps_done)  # saves at once and measures the duration of a save
                seen = self._agreed(self._look())
            if seen.notice_due and self._in_time(seen.late_ms / 1000):
                self._checkpoint_and_stop()
        if seen.save_due:
            self._saves.periodic(self.steps_done)

    def _in_time(self, late_s: float) -> bool:
        """Whether the last checkpoint can be written before the machine is taken away. If not, none is begun, so that a
        checkpoint in progress may still be completed."""
        if late_s == 0 or self._saves.step == self.steps_done:
            return True
        if self._too_late:
            return False
        self._too_late = not self._peers.share(self._saves.changes_fit(late_s) if self._peers.rank == 0 else None)
        if self._too_late:
            kept = self._journal.progress.manifest_step
            text = (
                f"the machine will be taken away {late_s:.1f} s before a checkpoint of step {self.steps_done} could be "
            )
            sys.stderr.write(f"{text}written; no checkpoint is begun, and steps after step {kept} will be repeated\n")
        return not self._too_late

    def _quiesced(self, seen: Seen) -> bool:
        if seen.successor >= 0:
            self._successors.add(seen.successor)
        return seen.successor >= 0

    def _void_successors(self) -> None:
        """Prevent a late takeover before training continues, because no run took over the job in time.

        The control plane may be paused just before it hands over the job. Without this, it would hand over the job when
        it resumes, and everything trained since then would be lost.
        """
        job, voided = self._spec.job_id, True
        if self._peers.rank == 0:
            voided = all(store.void_fence(self._checkpoints, job, each) for each in sorted(self._successors))
        if not self._peers.share(voided):
            raise RunEnded("fenced")
        self._successors.clear()

    def _checkpoint_and_stop(self) -> None:
        self._saves.once(self.steps_done)
        raise RunEnded("checkpointed_and_stopped")

    # Ownership

    def _require_ownership(self, seen: Seen) -> None:
        """Raises RunEnded if a newer generation owns the job or a lease has expired."""
        if seen.lease_over or seen.generation != self._spec.generation:
            raise RunEnded("fenced")

    def _await_fence(self) -> None:
        """Wait until the job is handed over to this generation; its fence may name another checkpoint than the spec."""
        own = self._spec.generation
        self._wait_while(lambda seen: seen.generation < own, self._agreed(self._look()))
        start = self._peers.share(self._start_of_fence() if self._peers.rank == 0 else "")
        if start is None:
            raise RunEnded("fenced")
        if start:
            self._restore(start)

    def _start_of_fence(self) -> str | None:
        """The fence's checkpoint if another one was restored, otherwise ""; None: the fence is not ours."""
        fence = store.fence(self._checkpoints, self._spec.job_id)
        if fence is None or fence.generation != self._spec.generation:
            return None
        restored = self._restored.name if self._restored is not None else None
        if restored is not None and restored.generation == self._spec.generation:
            return ""
        if restored is not None and fence.manifest is None:
            raise StateError(
                f"the fence starts the job from scratch, but {restored} was restored",
                hint="submit it as a new job, or remove its checkpoint folder",
            )
        return "" if fence.manifest == (str(restored) if restored is not None else None) else fence.manifest

    def _wait_while(self, condition: Callable[[Seen], bool], seen: Seen) -> Seen:
        """Wait at this step until the condition is false for the combined view of all ranks; returns that view."""
        while condition(seen):
            if seen.lease_over or seen.generation > self._spec.generation:
                raise RunEnded("fenced")
            if seen.stop or seen.notice_due:
                raise RunEnded("checkpointed_and_stopped")
            self._timers.sleep(_POLL_S)
            seen = self._agreed(self._look())
        return seen

    # Checkpoints

    def _restore(self, start: str | None) -> None:
        loaded = self._loaded(start)
        if loaded is None:
            return
        parts = self._captured_parts()
        if loaded.items.keys() != {*parts, *_OWN_ITEMS}:
            held = sorted(loaded.items.keys() - _OWN_ITEMS)
            raise StateError(
                f"checkpoint {loaded.name} has {', '.join(held)}; the program attached {', '.join(sorted(parts))}",
                hint="attach the same parts as the run that saved it",
            )
        with explained(parts, loaded.items):
            self._transient.restore_groups(loaded.items["transient"])
            self._attached.restore(loaded.items, loaded.items["given"])
            self._transient.restore(loaded.items["transient"])
        if self.loader is not None:
            if "loader" not in loaded.position:
                raise StateError(
                    f"checkpoint {loaded.name} was saved without a loader",
                    hint="attach the same parts as the run that saved it",
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

    def _loaded(self, start: str | None) -> Loaded | None:
        """The newest valid checkpoint, as this rank saved it. Raises StateError if another number of processes saved it
        and this number cannot continue it.
        """
        layouts = Layouts(self._captured_parts(), self._transient.named_parameters())
        spec = self._spec
        with restored_from(spec.fetched) as fetched:
            loaded = load_newest(
                self._checkpoints,
                spec.job_id,
                spec.generation,
                start,
                peers=self._peers,
                layout=layouts.of,
                in_place=layouts.in_place,
            )
        if fetched is not None and fetched.used_bytes:
            sys.stderr.write(f"{fetched.used_bytes / 1e6:,.1f} MB of the checkpoint were fetched ahead\n")
        if loaded is not None:
            for what, remedy in _NEEDED.items():
                if what in loaded.differing:
                    raise StateError(
                        f"checkpoint {loaded.name} was saved by {loaded.world_size} processes, this run has "
                        f"{self._peers.size}, and {remedy}",
                        hint=f"resume with {loaded.world_size} processes",
                    )
        return loaded

    def _restore_generators(self, loaded: Loaded) -> None:
        """Continue the random numbers of this rank. A rank that did not exist then draws rank 0's numbers if all ranks
        drew the same, otherwise different numbers.
        """
        if loaded.own or "rng" not in loaded.differing:
            restore_rng(loaded.items["rng"], own_device=self._peers.size > 1)
        else:
            key = f"{self._spec.seed} {self.steps_done} {self._peers.rank}".encode()
            seed_all(int.from_bytes(hashlib.blake2b(key, digest_size=7).digest(), "big"))

    def _captured(self) -> Snapshot:
        """The current state for a checkpoint."""
        position: dict[str, Any] = {"steps_done": self.steps_done, "epochs_done": self.epochs_done}
        if self.loader is not None:
            position["loader"] = self.loader.state_dict()
        items = {
            "given": self._attached.same(),
            **self._attached.capture(),
            "rng": capture_rng(own_device=self._peers.size > 1),
            "transient": self._transient.capture(),
        }
        self._rewrite = False
        return Snapshot(items, position, frozenset(frozen(self.parts.model, "model")))

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
