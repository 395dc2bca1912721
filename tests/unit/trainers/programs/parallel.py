"""A training program for several ranks that uses whatever differs between them, and can end one of them anywhere."""

import itertools
import os
import random
import signal
import time
from contextlib import nullcontext
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import trainers
from trainers.checkpoint import store, together
from trainers.control import ControlDirectory, Notice, QuiesceOrder

WIDE = 64


class Augmented(Dataset):
    """Draws from all three generators for each sample, and notes which ones this rank has read."""

    def __init__(self):
        self.seen = lambda index: index

    def __len__(self):
        return 90

    def __getitem__(self, index):
        self.seen(index)
        x = torch.full((6,), index / 90) + 0.1 * torch.rand(6)
        return x * random.uniform(0.9, 1.1), torch.tensor([numpy.random.rand()], dtype=torch.float32)


class Backwards(nn.Module):
    """Its layers are used in another order than they are registered in, so the buckets change after the first step."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(WIDE, 1)
        self.normal = nn.BatchNorm1d(WIDE)
        self.first = nn.Linear(6, WIDE)
        self.middle = nn.Linear(WIDE, WIDE)

    def forward(self, x):
        x = functional.dropout(self.normal(self.first(x)), 0.3, self.training)
        return self.last(torch.relu(self.middle(x)))


def main(kill=(), die_in=(), put=(), slowly=False):
    """`kill`: [rank, step]. `die_in`: [rank, function, call]. `put`: [rank, step, order]. `slowly`: with long
    steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # another model than that of rank 0, and other masks of dropout
    # The buffers differ as well, and there are several buckets of gradients.
    model = DistributedDataParallel(Backwards(), forward_sync_buffers=False, bucket_cap_mb=0.005)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data, own = Augmented(), {"sum": 0.0}
    loader = DataLoader(data, batch_size=4, shuffle=True)
    run: Any = trainers.attach(model=model, optimizer=optimizer, loader=loader, extra=own)
    notes = os.open(run.output_dir / f"read-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(notes, b"run begins\n")
    data.seen = lambda index: os.write(notes, f"{run.steps_done} {index}\n".encode())
    if die_in and die_in[0] == rank:
        _die_in(*die_in[1:])
    for x, y in run.batches():
        # Between the two steps of an accumulation, each rank has gradients of its own.
        with model.no_sync() if run.steps_done % 2 == 0 else nullcontext():
            loss = functional.mse_loss(model(x), y) * (1 + 0.1 * random.random() + 0.1 * numpy.random.rand())
            loss.backward()
        if run.steps_done % 2:
            optimizer.step()
            optimizer.zero_grad()
        own["sum"] += loss.item()
        if slowly:
            time.sleep(0.05)  # checkpoints are written beside the steps meanwhile
        run.step(loss)
        if [rank, run.steps_done] == list(kill):
            os.kill(os.getpid(), signal.SIGKILL)
        if [rank, run.steps_done] == list(put[:2]):
            _put(put[2], lease_until_s=run._began_s)  # just now, by the clock of this run, which tests replace
    os.write(notes, f"sum {own['sum'].hex()}\n".encode())
    dist.destroy_process_group()


def unconnected():
    """Each rank trains by itself."""
    model = nn.Linear(1, 1)
    trainers.attach(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def uneven():
    """The second rank takes more steps than the first."""
    dist.init_process_group("gloo")
    model = nn.Linear(1, 1)
    run = trainers.attach(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for number in run.batches():
        if number == 5 and dist.get_rank() == 1:
            run.step(0.0)
        run.step(0.0)


def stuck():
    """The second rank never comes to the end of a step, and the machine loses its lease."""
    dist.init_process_group("gloo")
    model = nn.Linear(1, 1)
    run = trainers.attach(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for number in run.batches():
        if number == 5 and dist.get_rank() == 1:
            _put("lease")
            signal.pause()
        run.step(0.0)


def _put(order, lease_until_s=0.0):
    """Write an order for the machine of this rank. A rank whose lease was over long ago is ended at any moment; if
    it is just over, it may still tell the others."""
    control = ControlDirectory(os.environ["TRADEWIND_CONTROL_DIR"])
    if order == "stop":
        control.request_stop()
    elif order == "notice":
        control.put_notice(Notice("spot", 0.0))
    elif order == "quiesce":
        control.put_quiesce(QuiesceOrder(60.0, 2))
    else:
        control.put_lease(lease_until_s)


def _die_in(function, call):
    """Kill this process at that call of a function of the two-phase commit."""
    module = store if hasattr(store, function) else together
    whole, calls = getattr(module, function), itertools.count(1)

    def counted(*arguments, **named):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*arguments, **named)

    setattr(module, function, counted)
