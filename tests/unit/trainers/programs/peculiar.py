"""Training programs that are peculiar and real: each is killed at a step and resumed bit for bit, or refused."""

import contextlib
import copy
import math
import os
import random
import signal
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from torch.optim import lr_scheduler, swa_utils
from torch.utils.data import DataLoader, Dataset, TensorDataset

import trainers


def main(program, kill_after_step=0):
    for run, loss in globals()[program]():
        run.step(loss)
        if run.steps_done == kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)


def small():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def data():
    return torch.rand(8, 4), torch.rand(8, 1)


def learn(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def table():
    return TensorDataset(torch.linspace(0, 1, 80).reshape(20, 4), torch.linspace(1, 0, 20).reshape(20, 1))


# Models


def compiled():
    """Attached as torch.compile wraps it: its names begin with _orig_mod."""
    model: Any = torch.compile(small(), backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


def parametrized():
    """Weights that are computed from others, in the new way and in the old; one of them is also another's."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    parametrizations.weight_norm(model[0])
    nn.utils.weight_norm(model[1])  # type: ignore[no-untyped-call]
    parametrizations.spectral_norm(model[2])
    other: Any = nn.Linear(4, 1)
    other.weight = model[3].weight
    optimizer = torch.optim.SGD([*model.parameters(), other.bias], 0.1, momentum=0.9)
    run = trainers.attach(model={"one": model, "other": other}, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        with parametrize.cached():
            hidden = model(x)
        yield run, learn(optimizer, functional.mse_loss(hidden + other(x), y))


def lazy():
    """Parameters get their shape from the first batch."""
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


class Counted(nn.Linear):
    """Tells more of itself than tensors."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + self.calls / 100)

    def get_extra_state(self):
        return {"calls": self.calls, ("deep", 1): [self.calls, None, math.inf]}

    def set_extra_state(self, state):
        self.calls = state["deep", 1][0]


def extra_state():
    model = nn.Sequential(Counted(4, 8), Counted(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


class Kinds(nn.Module):
    """Numbers of every kind."""

    def __init__(self):
        super().__init__()
        self.complex = nn.Parameter(torch.rand(4, 8, dtype=torch.complex64))
        self.lower = nn.Parameter(torch.rand(8, 1, dtype=torch.bfloat16))
        self.number = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.register_buffer("mask", torch.tensor([True] * 7 + [False]))
        self.register_buffer("eighth", torch.ones(8).to(torch.float8_e4m3fn))
        self.register_buffer("nothing", torch.zeros(2, 0, dtype=torch.int16))
        self.register_buffer("turned", torch.rand(8, 4).t())

    def forward(self, x):
        hidden = ((x + self.turned.t()[: len(x)]).to(torch.complex64) @ self.complex).abs()
        hidden = (hidden * self.mask.float() * self.eighth.float()).bfloat16()
        self.mask.logical_xor_(hidden.detach().float().sum(0) > 8)
        self.eighth.copy_(hidden.detach().float().mean(0))
        return (hidden @ self.lower).double() * self.number + self.empty.sum()


def kinds():
    model = Kinds()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y.double()))


def sparse():
    """Gradients of an embedding that have few rows, added up over two steps."""
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), 0.05)
    run = trainers.attach(model=model, optimizer=optimizer)
    for step in run.batches():
        loss = (model(torch.randint(0, 10, (5,))) - torch.rand(5, 4)).square().mean()
        loss.backward()
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        yield run, loss


def sparse_zeroed():
    """The same, but set to zero instead of dropped."""
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), 0.05)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        loss = (model(torch.randint(0, 10, (5,))) - torch.rand(5, 4)).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        yield run, loss


def doubled():
    """Changes the type of its weights on the way."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    for step in run.batches():
        if step == 3:
            model.double()
        x, y = data()
        x, y = x.to(model[0].weight.dtype), y.to(model[0].weight.dtype)
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


def doubled_early():
    """Changes it between attach() and its loop."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    model.double()
    for _ in run.batches():
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x.double()), y.double()))


def grown():
    """A buffer that becomes longer."""
    model = small()
    model.register_buffer("seen", torch.zeros(1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x), y) * (1 + model.seen.mean()))
        model.seen = torch.cat([model.seen, loss.detach()[None]])
        yield run, loss


def new_head():
    """A layer gives way to a new one, with an optimizer that knows it."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    for step in run.batches():
        if step == 3:
            model[2] = nn.Linear(8, 1)
            optimizer.add_param_group({"params": model[2].parameters()})
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


def graph():
    """A sum of losses over three steps, and one backward."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    state: dict[str, Any] = {"total": torch.zeros(())}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for step in run.batches():
        x, y = data()
        loss = functional.mse_loss(model(x), y)
        state["total"] = state["total"] + loss
        if step % 3 == 2:
            learn(optimizer, state["total"])
            state["total"] = torch.zeros(())
        yield run, loss


def graph_in_buffer():
    model = small()
    model.register_buffer("total", torch.zeros(()), persistent=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    for step in run.batches():
        x, y = data()
        loss = functional.mse_loss(model(x), y)
        model.total = model.total + loss
        if step % 3 == 2:
            learn(optimizer, model.total)
            model.total = torch.zeros(())
        yield run, loss


# Optimizers and schedulers


def rates():
    """Schedulers of every kind."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)

    class Rate:
        def __init__(self):
            self.factor = 1.0

        def __call__(self, epoch):
            self.factor *= 0.99
            return self.factor

    chained = lr_scheduler.ChainedScheduler(
        [
            lr_scheduler.LambdaLR(optimizer, lambda step: 0.95**step),
            lr_scheduler.MultiplicativeLR(optimizer, lambda step: 1 + 0.1 * (step % 2)),
            lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3, cycle_momentum=False),
        ]
    )
    other = torch.optim.Adam(model.parameters(), 0.01)
    callable_rate = lr_scheduler.LambdaLR(other, Rate())
    average = swa_utils.AveragedModel(model, use_buffers=True)
    slow = swa_utils.SWALR(other, swa_lr=0.05, anneal_epochs=4)
    schedulers = {"chained": chained, "rate": callable_rate, "slow": slow}
    run = trainers.attach(
        model={"model": model, "average": average},
        optimizer={"one": optimizer, "other": other},
        scheduler=schedulers,
    )
    for step in run.batches():
        x, y = data()
        used = (optimizer, other)[step % 2]
        loss = learn(used, functional.mse_loss(model(x) + 0.1 * average(x).detach(), y))
        chained.step()
        (callable_rate, slow)[step > 6].step()
        average.update_parameters(model)
        yield run, loss


def tensor_rate():
    """A rate that is a tensor, and known by another name."""
    model = small()
    rate = torch.tensor(0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        rate.mul_(0.9)
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


def scheduler_forgotten():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 12)
    for _ in run.batches():
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x), y))
        scheduler.step()
        yield run, loss


def scheduler_of_module():
    """The module knows the scheduler; torch's state_dict() of a module leaves it out."""
    model: Any = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.scheduler = lr_scheduler.StepLR(optimizer, 2)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x), y))
        model.scheduler.step()
        yield run, loss


def plateau_forgotten():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x), y))
        scheduler.step(loss.item())
        yield run, loss


def scaler_forgotten():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", growth_interval=2)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        loss = functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield run, loss


def optimizer_replaced():
    """Two phases, the second with an optimizer of its own."""
    model = small()
    optimizer: Any = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer)
    for step in run.batches():
        if step == 3:
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


def discriminator_forgotten():
    """A second model and its optimizer, which were not attached."""
    model, other = small(), nn.Linear(1, 1)
    optimizer, theirs = torch.optim.Adam(model.parameters(), 0.01), torch.optim.Adam(other.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        learn(theirs, (other(model(x).detach()) - other(y)).square().mean())
        yield run, learn(optimizer, functional.mse_loss(model(x), y) + other(model(x)).mean())


def throwaway():
    """An attack of a few steps in each step, by an optimizer that is made for it."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()
        delta = torch.zeros_like(x, requires_grad=True)
        attack = torch.optim.Adam([delta], 0.1)
        for _ in range(2):
            learn(attack, -functional.mse_loss(model(x + delta), y))
        yield run, learn(optimizer, functional.mse_loss(model(x + delta.detach()), y))


class Sharpness(torch.optim.Optimizer):
    """As SAM is often written: two gradients to a step, and an optimizer within."""

    def __init__(self, parameters, base, **options):
        super().__init__(parameters, options)
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def step(self, closure):  # type: ignore[override]
        moved = [(p, p.grad.mul(0.05)) for group in self.param_groups for p in group["params"]]
        for p, by in moved:
            p.add_(by)
        with torch.enable_grad():
            loss = closure()
        for p, by in moved:
            p.sub_(by)
        self.base_optimizer.step()
        return loss


class WholeSharpness(Sharpness):
    def state_dict(self):
        return self.base_optimizer.state_dict()

    def load_state_dict(self, state_dict):
        self.base_optimizer.load_state_dict(state_dict)
        self.param_groups = self.base_optimizer.param_groups


def _sharp(kind):
    model = small()
    optimizer = kind(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        x, y = data()

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        closure()
        yield run, optimizer.step(closure)


def wrapped():
    return _sharp(WholeSharpness)


def wrapped_in_part():
    return _sharp(Sharpness)


# Data


class Drawn(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        return torch.rand(4) + index / 22, random.random()


def mixed(samples):
    """A collate function that draws, too."""
    x, y = zip(*samples, strict=True)
    return torch.stack(x) + 0.1 * torch.rand(()), torch.tensor(y)[:, None] * float(numpy.random.rand())


def workers():
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader = DataLoader(
        Drawn(), 4, shuffle=True, collate_fn=mixed, num_workers=2, persistent_workers=True, prefetch_factor=3
    )
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader)
    for x, y in run.batches():
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


class Stream:
    """Reads in an order of its own and knows its place."""

    def __init__(self):
        self.epoch = self.at = 0

    def __iter__(self):
        order = numpy.random.default_rng(self.epoch).permutation(10)
        while self.at < 10:
            self.at += 1
            yield torch.full((8, 4), order[self.at - 1] / 10), torch.rand(8, 1)
        self.epoch, self.at = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, state):
        self.epoch, self.at = state["epoch"], state["at"]


def stream():
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer, loader=Stream())
    for x, y in run.batches():
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


def across_epochs():
    """Gradients are added up over the end of an epoch; evaluation draws in between; stops when nothing improves."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    state: dict[str, Any] = {"best": math.inf, "patience": 0}
    loader = DataLoader(table(), 4, shuffle=True)  # five batches an epoch
    held_out = DataLoader(table(), 5, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader, extra=state)
    for x, y in run.batches():
        loss = functional.mse_loss(model(x), y) + state["patience"] / 100
        (loss / 3).backward()
        if run.steps_done % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        if run.steps_done % 4 == 3:
            model.eval()
            with torch.no_grad():
                found = sum(functional.mse_loss(model(a) + 0.01 * torch.rand(1), b).item() for a, b in held_out)
            model.train()
            state["patience"] = 0 if found < state["best"] else state["patience"] + 1
            state["best"] = min(found, state["best"])
        if state["patience"] == 3:
            run.stop()
        yield run, loss


def own_loader():
    """A loader that the program reads itself, so that its place is not saved."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader = DataLoader(table(), 4, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer)
    batches = iter(loader)
    for _ in run.batches():
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, y = next(batches)
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


def own_loader_later():
    """The same, with an iterator that is made in the first step and read in every third one."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader = DataLoader(table(), 4, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer)
    for step in run.batches():
        if step == 0:
            batches = iter(loader)
        if step % 3 == 0:
            x, y = next(batches)
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


class Packing:
    """A collate function that remembers."""

    def __init__(self):
        self.calls = 0

    def __call__(self, samples):
        self.calls += 1
        x, y = zip(*samples, strict=True)
        return torch.stack(x) * self.calls, torch.stack(y)


def packing():
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    run = trainers.attach(model=model, optimizer=optimizer, loader=DataLoader(table(), 4, collate_fn=Packing()))
    for x, y in run.batches():
        yield run, learn(optimizer, functional.mse_loss(model(x), y))


# What is in `extra`


def containers():
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state: dict[str, Any] = {
        "deque": deque([1.0], maxlen=3),
        "default": defaultdict(list),
        "counter": Counter(),
        "ordered": OrderedDict(a=1),
        "numbers": {1: 0.5, (2, "x"): 1.5, None: 2.5, math.inf: 3.5, 7: [1]},
        "frozen": frozenset({1, 2}),
        "set": {3},
        "array": numpy.zeros((2, 3), order="F"),
        "scalar": numpy.float32(0.5),
        "strided": torch.zeros(3, 4).t()[1:3],
    }
    held = {name: state[name] for name in ("deque", "default", "counter", "numbers", "array", "strided")}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for step in run.batches():
        x, y = data()
        known = sum(held["deque"]) + len(held["default"]["a"]) + held["counter"][step % 3] + len(state["ordered"])
        known += held["numbers"][1] + held["numbers"][2, "x"] + float(held["array"].sum() + state["scalar"])
        known += held["strided"].sum() + len(state["set"]) + len(state["frozen"])
        loss = learn(optimizer, functional.mse_loss(model(x), y) + 0.01 * known)
        held["deque"].append(loss.item())
        held["default"]["ab"[step % 2]].append(step)
        held["counter"].update([step % 3])
        held["numbers"][1] += 0.1
        held["array"][step % 2] += 1
        held["strided"].add_(0.1)
        state["ordered"].move_to_end("a")
        state["ordered"][f"k{step}"] = step
        state["set"].add(step)
        state["frozen"] = state["frozen"] | {step}
        state["scalar"] = numpy.float32(state["scalar"] * 0.9)
        yield run, loss


def two_names():
    """What came later and is known by two names stays one thing."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state: dict[str, Any] = {"a": None, "b": {}}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for step in run.batches():
        if step == 2:
            state["a"] = [0.0]
            state["b"]["c"] = state["a"]
            state["turned"] = torch.rand(37, 53).t()
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x), y))
        if step >= 2:
            state["a"][0] += loss.item()
            loss = loss + state["b"]["c"][0] + state["turned"].sum()
        yield run, loss


def spawning():
    """Generators of numpy that have children."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    numbers = numpy.random.Generator(numpy.random.Philox(5))
    run = trainers.attach(model=model, optimizer=optimizer, extra={"numbers": numbers})
    for _ in run.batches():
        (child,) = numbers.spawn(1)
        x, y = data()
        yield run, learn(optimizer, functional.mse_loss(model(x), y) + child.random() + numbers.random())


def by_hand():
    """Weights in `extra`, whose gradients are added up and used without an optimizer."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    prompt = torch.zeros(4, requires_grad=True)
    run = trainers.attach(model=model, optimizer=optimizer, extra={"prompt": [prompt]})
    for step in run.batches():
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x + prompt), y))
        if step % 3 == 2:
            with torch.no_grad():
                prompt -= 0.1 * prompt.grad
            prompt.grad = None
        yield run, loss


def late_weights():
    """The same, but they come on the way."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state: dict[str, Any] = {}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for step in run.batches():
        if step == 1:
            state["prompt"] = torch.zeros(4, requires_grad=True)
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x + state.get("prompt", 0)), y))
        yield run, loss


def best_model():
    """A copy of the model comes later and is refused; its state_dict would not be."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state: dict[str, Any] = {}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for step in run.batches():
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x), y))
        with contextlib.suppress(KeyError):
            loss = loss + state["best"](x).mean()
        if step == 3:
            state["best"] = copy.deepcopy(model)
        yield run, loss


def best_is_the_same():
    """Keeps what state_dict() gives, which does not copy, as many programs do."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state: dict[str, Any] = {"best": None}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for _ in run.batches():
        x, y = data()
        loss = learn(optimizer, functional.mse_loss(model(x), y))
        state["best"] = model.state_dict()
        yield run, loss
