"""A program whose step uses the same samples on any number of processes with any batch size: it has a global batch."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import trainers

SAMPLES, GLOBAL_BATCH = 50, 12


class Augmented(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, torch.full((4,), index / SAMPLES) + 0.1 * torch.rand(4), torch.tensor([random.random()])


def main(batch_size, workers=0):
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(1)
    model: nn.Module = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    loader = DataLoader(Augmented(), batch_size=batch_size, shuffle=True, num_workers=workers)
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader, global_batch=GLOBAL_BATCH)
    whole, read = torch.zeros(()), []
    for index, x, y in run.batches():
        loss = functional.mse_loss(model(x), y) * run.weight
        loss.backward()
        whole += loss.detach()
        read += index.tolist() if run.weight else []
        if run.accumulating:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if ranks > 1:
            dist.all_reduce(whole)
        with (run.output_dir / f"read-{os.environ.get('RANK', '0')}").open("a") as file:
            file.write(f"{run.steps_done} {' '.join(map(str, read))}\n")
        run.step(whole / ranks)
        whole, read = torch.zeros(()), []
    if ranks > 1:
        dist.destroy_process_group()


def hasty():
    """Does not ask whether the step has more batches."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = trainers.attach(
        model=model, optimizer=optimizer, loader=DataLoader(Augmented(), batch_size=5), global_batch=GLOBAL_BATCH
    )
    for _, x, _ in run.batches():
        run.step(model(x).mean())
