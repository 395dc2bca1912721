"""Hugging Face Trainer: `follow(trainer)`, before `trainer.train()`, makes its training movable and exact.

Under Tradewind, the trainer then starts from the newest checkpoint, saves as `trainers.attach` does, and follows the
machine's orders; elsewhere `follow` does nothing. It saves model, optimizer, scheduler, scaler and the trainer's state.
Trained batches are skipped without being read. You need no `save_strategy`. Your own loop with Accelerate needs only
`trainers.attach`, with the loader before `accelerator.prepare`.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName
from trainers.data.keyed import keyed
from trainers.errors import DamagedCheckpoint, StateError, TrainerError
from trainers.frameworks.driven import DrivenLoop
from trainers.loop.session import attach
from trainers.process.run_context import RunContext, present_context


def follow(trainer: Trainer) -> None:
    """See the module. Raises TrainerError."""
    context = present_context()
    if context is None:
        return
    if context.spec.steps is not None:
        trainer.args.max_steps = context.spec.steps
    elif context.spec.epochs is not None:
        trainer.args.num_train_epochs = context.spec.epochs
    _Following(trainer, context)


class _Following(TrainerCallback):
    """The callback of one trainer, and the methods that it replaces."""

    def __init__(self, trainer: Trainer, context: RunContext) -> None:
        self._trainer, self._context = trainer, context
        self._loop: DrivenLoop | None = None
        self._loss = 0.0
        self._train, self._training_step = trainer.train, trainer.training_step
        self._loader = trainer.get_train_dataloader
        replaced: dict[str, Any] = {
            "train": self._from_newest,
            "training_step": self._summed,
            "get_train_dataloader": self._keyed_loader,
            "_load_from_checkpoint": lambda *_, **__: None,  # the session restores when there is an optimizer
            "_load_rng_state": lambda *_: self._loop and self._loop.restore_generators(),
        }
        for name, function in replaced.items():
            setattr(trainer, name, function)
        trainer.add_callback(self)

    def _from_newest(self, resume_from_checkpoint: Any = None, **options: Any) -> Any:
        """Trainer.train from the step of the newest checkpoint."""
        if resume_from_checkpoint:
            raise TrainerError("train() was given resume_from_checkpoint", hint="leave it out: Tradewind restores")
        step = _newest_step(self._context)
        if step == 0:
            return self._train(**options)
        with tempfile.TemporaryDirectory() as folder:
            state = TrainerState(global_step=step, train_batch_size=self._trainer.args.train_batch_size)
            state.save_to_json(str(Path(folder) / TRAINER_STATE_NAME))
            return self._train(resume_from_checkpoint=folder, **options)

    def _keyed_loader(self) -> Any:
        trainer = self._trainer
        sampler = trainer._get_train_sampler(trainer.train_dataset)
        return trainer.accelerator.prepare(keyed(self._loader(), sampler, self._context.spec.seed))

    def _summed(self, *args: Any, **options: Any) -> Any:
        loss = self._training_step(*args, **options)
        self._loss += float(loss.detach())
        return loss

    # The events of the trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Restore, now that the optimizer exists."""
        trainer, scaler = self._trainer, self._trainer.accelerator.scaler
        run = attach(
            model=trainer.accelerator.unwrap_model(trainer.model),
            optimizer=getattr(trainer.optimizer, "optimizer", trainer.optimizer),
            scheduler=getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler),
            scaler=scaler,
            extra={"trainer": _State(state)},
            steps=state.max_steps,
        )
        expected, self._loop = state.global_step, DrivenLoop(run)
        self._loop.begin()
        if run.steps_done != expected:
            raise StateError(
                f"step {run.steps_done} was restored, but the trainer begins at step {expected}",
                hint="the checkpoint was damaged in the meantime: submit the job again",
            )
        if not run.between():
            control.should_training_stop = True

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Restore the generators, so that an evaluation between the steps does not change the draws."""
        if self._loop is not None:
            self._loop.restore_generators()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """After each step of the optimizer."""
        assert self._loop is not None
        self._loop.keep_generators()
        loss, self._loss = self._loss, 0.0
        if not self._loop.stepped(loss):
            control.should_training_stop = True

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Write the last checkpoint."""
        if self._loop is not None:
            self._loop.end()


class _State:
    """The trainer's progress (log history, best metric ...), and the state that its callbacks keep in it."""

    def __init__(self, state: TrainerState) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        text = json.dumps({name: value for name, value in vars(self._state).items() if _plain(value)})
        return {"json": text}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        vars(self._state).update(json.loads(saved["json"]))


def _plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def _newest_step(context: RunContext) -> int:
    """The step of the checkpoint from which the session will start; 0 without a checkpoint."""
    spec = context.spec
    fence = store.fence(context.checkpoints, spec.job_id)
    named = fence.manifest if fence is not None and fence.generation == spec.generation else spec.manifest
    start = None if named is None else ManifestName.parse(named)
    verify = partial(store.verify, context.checkpoints, spec.job_id)
    damages: list[DamagedCheckpoint] = []
    found = store.first_usable(context.checkpoints, spec.job_id, spec.generation, verify, damages.append, start)
    return 0 if found is None else found.name.step
