"""A LightningModule with all that a resume has to restore, trained under the callback; it can kill itself."""

import logging
import os
import random
import signal
import warnings

import lightning.pytorch as pl
import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from trainers.frameworks.lightning import TradewindCallback


class Augmented(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        x = torch.full((4,), index / 22) + 0.1 * torch.rand(4)
        return x * random.uniform(0.9, 1.1), torch.tensor([numpy.random.rand()], dtype=torch.float32)


class Module(pl.LightningModule):
    def __init__(self, kill_after_step):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
        self.kill_after_step, self.seen = kill_after_step, 0.0

    def training_step(self, batch, _):
        loss = functional.mse_loss(self.net(batch[0]), batch[1]) * (1 + 0.1 * random.random() + 0.1 * self.seen)
        self.seen = 0.5 * self.seen + 0.1
        if self.global_step == self.kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss

    def validation_step(self, batch, _):
        self.log("val", functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint):
        checkpoint["seen"] = self.seen

    def on_load_checkpoint(self, checkpoint):
        self.seen = checkpoint["seen"]


def main(kill_after_step=-1, accumulate=1, workers=0, steps=24):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    loader = DataLoader(Augmented(), batch_size=4, shuffle=True, num_workers=workers)
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        accumulate_grad_batches=accumulate,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[TradewindCallback()],
    )
    trainer.fit(Module(kill_after_step), loader, DataLoader(Augmented(), batch_size=11))
