"""Lightning: `Trainer(callbacks=[TradewindCallback()])` makes a LightningModule's training movable and exact.

Under Tradewind, the callback restores the newest checkpoint before training, saves as `trainers.attach` does, and
follows the machine's orders; elsewhere it does nothing. It saves the module, its optimizers and schedulers, the scaler
of mixed precision, the progress of Lightning's loops, the states of the other callbacks, and the additions of the
module's `on_save_checkpoint`. `trainers.ResumableLoader` reads the train loader. Leave `ckpt_path` and
`ModelCheckpoint` out: their checkpoints are not needed.

Random draws of a validation do not affect the training, so a run may be resumed before or after a validation. Lightning
does not repeat an interrupted validation: actions that depend only on its result (ReduceLROnPlateau, EarlyStopping)
then happen one validation later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trainers.data.loader import ResumableLoader, resumable
from trainers.errors import LoaderError, TrainerError
from trainers.frameworks.driven import DrivenLoop
from trainers.loop.peers import world
from trainers.loop.session import attach
from trainers.process.run_context import present_context


class TradewindCallback(Callback):
    """See the module. Raises TrainerError for training that it cannot resume exactly."""

    def __init__(self) -> None:
        self._loop: DrivenLoop | None = None
        self._epochs: _Epochs | None = None
        self._step = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore, after Lightning has made the optimizers and before it restores anything itself."""
        context = present_context()
        if context is None:
            return
        if trainer.ckpt_path is not None:
            raise TrainerError(
                "fit() was given a ckpt_path", hint="leave it out: Tradewind restores its own checkpoint"
            )
        loader = resumable(_train_loader(trainer), context.spec.seed, *world())
        if not isinstance(loader, ResumableLoader):
            raise LoaderError(f"a {type(loader).__name__} cannot be the train loader", hint="use a DataLoader")
        self._epochs = _Epochs(loader)
        trainer.fit_loop._data_source.instance = self._epochs
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        schedulers = {str(place): each.scheduler for place, each in enumerate(trainer.lr_scheduler_configs)}
        run = attach(
            model=pl_module,
            optimizer={str(place): each for place, each in enumerate(trainer.optimizers)},
            scheduler=schedulers or None,
            scaler=scaler,
            loader=loader,
            extra={"lightning": _Progress(trainer, self)},
            steps=None if trainer.max_steps == -1 else trainer.max_steps,
            epochs=None if trainer.max_epochs in (None, -1) else trainer.max_epochs,
        )
        self._loop = DrivenLoop(run)
        self._loop.begin()
        self._step = trainer.global_step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop a run that resumes after its last step."""
        if self._loop is not None and not self._loop.run.between():
            trainer.should_stop = True

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Restore the generators, so that a validation between the batches does not change the draws."""
        if self._loop is not None:
            self._loop.restore_generators()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After each step of the optimizers."""
        if self._loop is None:
            return
        self._loop.keep_generators()
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._loop.run.epochs_done = trainer.current_epoch + trainer.fit_loop.epoch_loop._num_ready_batches_reached()
        if not self._loop.stepped(float("nan") if loss is None else loss):
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the last checkpoint."""
        if self._loop is not None:
            self._loop.end()


class _Epochs:
    """A loader whose iterations each return the rest of an epoch, also if the previous one was not read to its end."""

    def __init__(self, loader: ResumableLoader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if self.loader.batch >= len(self.loader):
            self.loader.epoch, self.loader.batch = self.loader.epoch + 1, 0
        return iter(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Lightning needs this: without it, it assumes that the loader starts over. The session has the position."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See state_dict."""


class _Progress:
    """Lightning's state besides the parts: its loops, the other callbacks, and the module's additions."""

    def __init__(self, trainer: Trainer, own: Callback) -> None:
        self._trainer, self._own = trainer, own

    def _callbacks(self) -> Iterator[tuple[str, Callback]]:
        for place, each in enumerate(self._trainer.callbacks):
            if each is not self._own:
                yield f"{place} {each.state_key}", each

    def state_dict(self) -> dict[str, Any]:
        added: dict[str, Any] = {}
        self._trainer.lightning_module.on_save_checkpoint(added)
        return {
            "fit_loop": self._trainer.fit_loop.state_dict(),
            "callbacks": {key: each.state_dict() for key, each in self._callbacks()},
            "module": added,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._trainer.fit_loop.load_state_dict(state["fit_loop"])
        for key, each in self._callbacks():
            if key in state["callbacks"]:
                each.load_state_dict(state["callbacks"][key])
        if state["module"]:
            self._trainer.lightning_module.on_load_checkpoint(state["module"])


def _train_loader(trainer: Trainer) -> Any:
    loader = trainer.fit_loop._data_source.dataloader()
    if loader is None:
        raise LoaderError(
            "fit() was given no train loader", hint="pass train_dataloaders=, or define train_dataloader()"
        )
    return loader
