"""A training program put together from options, for benchmarks.kill_resume: `main(**options)`, see `options`."""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import trainers

SAMPLES, FEATURES = 90, 6


def options(chance: random.Random) -> dict[str, Any]:
    """The arguments of `main`, drawn at random."""
    return {
        "model": chance.choice(["dense", "convolutions", "recurrent"]),
        "dropout": chance.choice([0.0, 0.2, 0.5]),
        "normal": chance.random() < 0.6,
        "optimizer": chance.choice(["adamw", "momentum", "rmsprop"]),
        "scheduler": chance.choice(["none", "one cycle", "cosine", "plateau"]),
        "precision": chance.choice(["float32", "bfloat16", "scaled"]),
        "accumulation": chance.choice([1, 1, 2, 3]),
        "average": chance.random() < 0.3,
        "workers": chance.choice([0, 0, 1, 2, 4]),
    }


class Augmented(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Draws from all three generators for each sample; slow enough for checkpoints to be written beside the steps."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.002)
        x = torch.full((FEATURES,), index / SAMPLES) + 0.1 * torch.rand(FEATURES)
        return x * random.uniform(0.9, 1.1), torch.tensor([numpy.random.rand()], dtype=torch.float32)


class Recurrent(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.cell, self.drop, self.out = nn.LSTM(1, 12, batch_first=True), nn.Dropout(dropout), nn.Linear(12, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.drop(self.cell(x[:, :, None])[0][:, -1]))
        return found


def build(model: str, dropout: float, normal: bool) -> nn.Module:
    if model == "recurrent":
        return Recurrent(dropout)
    if model == "convolutions":
        between: list[nn.Module] = [nn.BatchNorm1d(8)] if normal else []
        return nn.Sequential(
            nn.Unflatten(1, (1, FEATURES)), nn.Conv1d(1, 8, 3), *between, nn.ReLU(), nn.Dropout(dropout),
            nn.Flatten(), nn.Linear(8 * (FEATURES - 2), 1),
        )  # fmt: skip
    between = [nn.BatchNorm1d(16)] if normal else [nn.LayerNorm(16)]
    return nn.Sequential(nn.Linear(FEATURES, 16), *between, nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 1))


def main(
    model: str,
    dropout: float,
    normal: bool,
    optimizer: str,
    scheduler: str,
    precision: str,
    accumulation: int,
    average: bool,
    workers: int,
) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    net = build(model, dropout, normal)
    parallel = DistributedDataParallel(net) if ranks > 1 else net
    chosen: torch.optim.Optimizer
    if optimizer == "adamw":
        chosen = torch.optim.AdamW(parallel.parameters(), lr=0.01)
    elif optimizer == "momentum":
        chosen = torch.optim.SGD(parallel.parameters(), lr=0.01, momentum=0.9)
    else:
        chosen = torch.optim.RMSprop(parallel.parameters(), lr=0.003)
    schedules: dict[str, Any] = {
        "none": lambda: None,
        "one cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(chosen, max_lr=0.02, total_steps=1000),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(chosen, 37),
        "plateau": lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(chosen, patience=3),
    }
    schedule = schedules[scheduler]()
    # So large that it overflows soon: the skipped steps depend on the scaler's whole state.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**122, growth_interval=3) if precision == "scaled" else None
    averaged = torch.optim.swa_utils.AveragedModel(net, use_buffers=True) if average else None
    loader = DataLoader(Augmented(), batch_size=5, shuffle=True, num_workers=workers)
    run = trainers.attach(
        model=parallel,
        optimizer=chosen,
        scheduler=schedule,
        scaler=scaler,
        loader=loader,
        extra=None if averaged is None else {"averaged": averaged},
    )
    low = precision != "float32"
    count = 0
    for x, y in run.batches():
        with torch.autocast("cpu", dtype=torch.bfloat16) if low else contextlib.nullcontext():
            prediction = parallel(x)
        loss = functional.mse_loss(prediction.float(), y) * (1 + 0.2 * random.random() + 0.2 * numpy.random.rand())
        torch.autograd.backward(loss if scaler is None else scaler.scale(loss))
        count += 1
        if count % accumulation:
            continue
        if scaler is None:
            chosen.step()
        else:
            scaler.step(chosen)
            scaler.update()
        chosen.zero_grad()
        if averaged is not None:
            averaged.update_parameters(net)
        if schedule is not None:
            schedule.step(*([loss.item()] if scheduler == "plateau" else []))
        run.step(loss)
    if ranks > 1:
        dist.destroy_process_group()
