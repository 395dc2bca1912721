"""Training programs that are unusual and legal; each is killed at a step and resumed."""

import copy
import os
import random
import signal
from collections import deque
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel

import trainers


def main(program, kill_after_step=0):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
    for run, loss in PROGRAMS[program](model):
        run.step(loss)
        if run.steps_done == kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)


def data():
    return torch.rand(8, 4), torch.rand(8, 1)


def lbfgs(model):
    """A closure, and line searches whose history is in the optimizer's state."""
    model[2].eval()
    x, y = torch.linspace(0, 1, 32).reshape(8, 4), torch.linspace(1, 0, 8).reshape(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, line_search_fn="strong_wolfe")
    run = trainers.attach(model=model, optimizer=optimizer)

    def closure():
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y) + 0.01 * len(list(model.parameters()))
        loss.backward()
        return loss

    for _ in run.batches():
        yield run, optimizer.step(closure)


def adversaries(model):
    """Two optimizers in turn; the one's backward adds to gradients of the other."""
    other = nn.Linear(1, 4)
    ours, theirs = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.optim.Adam(other.parameters(), 0.01)
    run = trainers.attach(model={"a": model, "b": other}, optimizer={"a": ours, "b": theirs})
    for step in run.batches():
        loss = functional.mse_loss(model(other(torch.rand(8, 1))), data()[1])
        (ours, theirs)[step % 2].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        (ours, theirs)[step % 2].step()
        yield run, loss


def averages(model):
    """Averages of the weights in three ways, one of them by another name; a generator; a window of losses."""
    optimizer = torch.optim.RAdam(model.parameters(), 0.01)
    swa = AveragedModel(model)
    shadow = {name: value.detach().clone() for name, value in model.named_parameters()}
    recent, noise = deque(maxlen=5), torch.Generator().manual_seed(3)
    run = trainers.attach(
        model=model, optimizer=optimizer, extra={"swa": swa, "shadow": shadow, "recent": recent, "noise": noise}
    )
    for _ in run.batches():
        x, y = data()
        x = x + 0.1 * torch.rand(x.shape, generator=noise)
        pull = sum((shadow[name] - value).square().sum() for name, value in model.named_parameters())
        loss = functional.mse_loss(model(x), y) + pull + swa(x).mean().detach() + sum(recent)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        swa.update_parameters(model)
        for name, value in model.named_parameters():
            shadow[name].lerp_(value.detach(), 0.1)
        recent.append(loss.item() / 100)
        yield run, loss


def thaws(model):
    """Groups that come on the way; a rate that is set in a group which the program holds; schedulers in a row."""
    optimizer = torch.optim.AdamW(model[3].parameters(), 0.05, amsgrad=True)
    group = optimizer.param_groups[0]
    run = trainers.attach(model=model, optimizer=optimizer)
    for step in run.batches():
        if step == 6:
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
        group["lr"] = 0.05 * 0.9**step
        x, y = data()
        loss = functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield run, loss


def schedules(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9, nesterov=True)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)
    cosine = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4)
    chain = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [5])
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    run = trainers.attach(model=model, optimizer=optimizer, scheduler={"chain": chain, "plateau": plateau})
    for step in run.batches():
        x, y = data()
        loss = functional.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss.backward()
        optimizer.step()
        chain.step()
        if step > 12:
            plateau.step(loss.item())
        yield run, loss


def recurrent(model):
    """A hidden state that is carried on; tied weights; a replay buffer; hooks on a module and on a parameter."""
    cell = nn.GRUCell(4, 4)
    cell.weight_hh = cell.weight_ih
    cell.register_buffer("calls", torch.zeros(()), persistent=False)

    def count(module, *_):
        module.calls.add_(1)

    cell.register_forward_hook(count)
    cell.weight_ih.register_hook(lambda gradient: gradient * 0.5)
    optimizer = torch.optim.Adagrad([*cell.parameters(), *model.parameters()], 0.05)
    hidden, replay, numbers = torch.zeros(8, 4), [], random.Random(7)
    state: dict[str, Any] = {"replay": replay, "hidden": hidden, "numbers": numbers, "best": float("inf")}
    run = trainers.attach(model={"cell": cell, "head": model}, optimizer=optimizer, extra=state)
    for _ in run.batches():
        x, y = data()
        replay.append(x)
        carried = cell(replay[numbers.randrange(len(replay))], hidden)
        loss = functional.mse_loss(model(carried), y) * (1 + cell.calls / 100) + min(state["best"], 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hidden.copy_(carried.detach())
        state["best"] = min(state["best"], loss.item())
        yield run, loss


def best_so_far(model):
    """The best weights are kept and sometimes taken back: a state_dict that is put into the dict on the way."""
    optimizer = torch.optim.RMSprop(model.parameters(), 0.02, centered=True)
    state: dict[str, Any] = {"best": None, "loss": float("inf")}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for step in run.batches():
        x, y = data()
        loss = functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < state["loss"]:
            state.update(best=copy.deepcopy(model.state_dict()), loss=loss.item())
        if step % 7 == 6:
            model.load_state_dict(state["best"])
        yield run, loss


def turned(model):
    """channels_last weights, and an accumulation whose sum is clipped."""
    convolution = nn.Conv2d(4, 8, 3)
    convolution.weight.data = convolution.weight.data.contiguous(memory_format=torch.channels_last)
    net = nn.Sequential(convolution, nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(72, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    run = trainers.attach(model=net, optimizer=optimizer)
    for step in run.batches():
        x = torch.rand(4, 4, 5, 5).to(memory_format=torch.channels_last)
        loss = functional.mse_loss(net(x), torch.rand(4, 1))
        loss.backward()
        if step % 3 == 2:
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        yield run, loss


PROGRAMS = {
    each.__name__: each for each in (lbfgs, adversaries, averages, thaws, schedules, recurrent, best_so_far, turned)
}
