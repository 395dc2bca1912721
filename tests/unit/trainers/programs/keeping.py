"""A training program that keeps what no state_dict holds, and ends a step in the middle of an accumulation."""

import os
import random
import signal
from collections import deque
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Subset

import trainers


class Counting(Dataset):
    """Every sample depends on how many were asked for before, and on generators of its own."""

    def __init__(self):
        self.calls = 0
        self.numbers = numpy.random.default_rng(5)

    def __len__(self):
        return 44

    def __getitem__(self, index):
        self.calls += 1
        x = torch.full((6,), index / 42 + 0.01 * self.calls)
        return x + 0.1 * float(self.numbers.random()), torch.rand(1)


class Recorded(Counting):
    def state_dict(self):
        return {"calls": self.calls, "numbers": self.numbers.bit_generator.state}

    def load_state_dict(self, state):
        self.calls = state["calls"]
        self.numbers.bit_generator.state = state["numbers"]


class Drifting(nn.Module):
    """Changes its buffers, which are not persistent; one of them appears when it is first needed."""

    late: torch.Tensor | None

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6), persistent=False)
        self.register_buffer("late", None, persistent=False)
        self.register_buffer("mask", torch.ones(6), persistent=False)

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        self.late = x.detach()[0] if self.late is None else self.late.data * 0.5 + x.detach()[0]
        return (x - self.mean + 0.1 * self.late) * self.mask


def main(kill_after_step=0, clear="after", forgetful=False, modes=False):
    model = nn.Sequential(Drifting(), nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    loose, shared = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))  # in no module; one of them in `extra`
    optimizer = torch.optim.SGD([*model.parameters(), loose, shared], lr=0.05, momentum=0.9)
    dataset = Counting() if forgetful else Subset(Recorded(), range(42))
    extra: dict[str, Any] = {"noise": torch.Generator().manual_seed(3), "python_noise": random.Random(4)}
    extra |= {"shared": [shared]}
    losses, average, drawn, recent = [], torch.zeros(6), numpy.zeros(3), deque(maxlen=3)
    extra |= {"aliases": {"losses": losses, "average": average, "drawn": drawn, "recent": recent}, "best": 1e9}
    extra |= {"numpy_noise": numpy.random.RandomState(5), "rng_noise": numpy.random.default_rng(6)}
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader, extra=extra)
    for x, y in run.batches():
        step = run.steps_done
        every = 1 if clear in ("later", "second") else 4
        if (clear == "before" and step % every == 0) or (clear == "later" and step < 20):
            optimizer.zero_grad()
        if clear == "in place" and step % every == 0:
            optimizer.zero_grad(set_to_none=False)
        if modes and step == 6:
            model[1].requires_grad_(False)
            model[2].eval()
        noise = torch.rand(1, generator=extra["noise"]) + extra["python_noise"].random()
        noise += float(extra["numpy_noise"].rand() + extra["rng_noise"].random())
        x = x + average + float(drawn.sum()) + sum(recent) + len(losses) / 100  # known by their other names
        loss = functional.mse_loss(model(x) * loose * shared, y) * (1 + 0.1 * noise.item() + min(extra["best"], 1))
        losses.append(loss.item())
        average.mul_(0.9).add_(x.mean(0), alpha=0.01)
        drawn[step % 3] = loss.item() / 10
        recent.append(loss.item() / 10)
        extra["best"] = min(extra["best"], loss.item())
        loss.backward()
        if step % every == every - 1:
            nn.utils.clip_grad_norm_([*model.parameters(), loose, shared], 0.5)
            optimizer.step()
            if clear == "after" or (clear == "second" and step % 2):
                optimizer.zero_grad()
        run.step(loss)
        if run.steps_done == kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)
