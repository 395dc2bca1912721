"""A data-parallel program as users write them, tiny; it notes what each rank reads, dawdles until `hurry`."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import trainers

DAWDLE_S = 0.2
SAMPLES = 64


class Noted(Dataset):
    def __init__(self):
        self.seen = lambda index: index

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.seen(index)
        return torch.full((8,), index / SAMPLES) + 0.1 * torch.rand(8)


def main(hurry):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 8))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Noted()
    run = trainers.attach(model=model, optimizer=optimizer, loader=DataLoader(data, batch_size=4, shuffle=True))
    notes = os.open(run.output_dir / f"read-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(notes, b"began\n")
    data.seen = lambda index: os.write(notes, f"{run.steps_done} {index}\n".encode())
    for batch in run.batches():
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        if not Path(hurry).exists():
            time.sleep(DAWDLE_S)
    dist.destroy_process_group()
