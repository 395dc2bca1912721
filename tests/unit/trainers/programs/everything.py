"""A training program that uses whatever a checkpoint must carry, and can kill itself anywhere."""

import os
import random
import resource
import signal

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import trainers


class Augmented(Dataset):
    """Draws from all three generators for each sample."""

    def __len__(self):
        return 42

    def __getitem__(self, index):
        x = torch.full((6,), index / 42) + 0.1 * torch.rand(6)
        return x * random.uniform(0.9, 1.1), torch.tensor([numpy.random.rand()], dtype=torch.float32)


def main(kill_after_step=0, kill_at_sync=0, workers=0, file_limit_after_step=0, raise_at=0, exit_at=0, clock_off_s=0.0):
    _set_clock_off(clock_off_s)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=200)
    # So large that growing overflows soon: which steps are skipped depends on the scaler's whole state.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**122, growth_interval=3)
    averaged = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    loader = DataLoader(Augmented(), batch_size=4, shuffle=True, num_workers=workers)
    run = trainers.attach(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        loader=loader,
        extra={"averaged": averaged},
    )
    if kill_at_sync:
        _kill_at_sync(kill_at_sync)
    for x, y in run.batches():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = model(x) + 0.1 * averaged.module[0](x).detach().mean()  # of an average, as a teacher's
        loss = functional.mse_loss(prediction.float(), y) * (1 + 0.2 * random.random() + 0.2 * numpy.random.rand())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if run.steps_done == 9:
            next(model.parameters()).grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        averaged.update_parameters(model)
        run.step(loss)
        torch.rand(random.randint(1, 3))  # what follows run.step belongs to the step, too
        if run.steps_done == kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if run.steps_done == file_limit_after_step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (6144, resource.RLIM_INFINITY))  # less than a chunk
        if run.steps_done == raise_at:
            raise ValueError("the gradient descended too far")
        if run.steps_done == exit_at:
            raise SystemExit("no more")


def _set_clock_off(seconds):
    """The wall clock of this machine is wrong. Nobody may ask for it (ruff sees to that): it shows in files alone."""
    link, utime = os.link, os.utime

    def shifted(path):
        wrong = os.stat(path).st_mtime + seconds
        utime(path, (wrong, wrong))

    def linked(source, target):
        shifted(source)
        link(source, target)

    vars(os).update(link=linked)


def _kill_at_sync(number):
    """Die at the n-th fsync or link from now on: between any two durable writes of a save."""
    left = number
    fsync, link = os.fsync, os.link

    def counted(call):
        def wrapped(*arguments):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)

        return wrapped

    os.fsync, os.link = counted(fsync), counted(link)
