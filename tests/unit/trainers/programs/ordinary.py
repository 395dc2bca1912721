"""Training programs as tutorials write them, with the five lines that make them movable. Nothing in them is unusual."""

import copy
import functools
import itertools
import math
import os
import random
import signal
from collections import deque
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler, swa_utils
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

import trainers


def main(program, kill_after_step=0):
    for run, loss in globals()[program]():
        run.step(loss)
        if run.steps_done == kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)


def samples(count=24):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(count, 4, generator=generator)
    return TensorDataset(x, (x.sum(1) > 2).long())


def classifier():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def first_look():
    """PyTorch's own first tutorial looks at a batch before it trains, and at one afterwards."""
    train_loader = DataLoader(samples(), 4, shuffle=True)
    test_loader = DataLoader(samples(), 4)
    dataiter = iter(train_loader)
    images, _labels = next(dataiter)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    assert model(images).shape == (4, 2)
    run = trainers.attach(model=model, optimizer=optimizer, loader=train_loader)
    for inputs, labels in run.batches():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        yield run, loss
    dataiter = iter(test_loader)
    next(dataiter)


class HuggingTrainer:
    """Owns all parts, makes optimizer and scheduler itself, and keeps a log of what happened."""

    def __init__(self, model, train_dataset, eval_dataset, total_steps):
        self.model = model
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.state = {"best_metric": None, "log_history": []}
        decay = [p for n, p in model.named_parameters() if "bias" not in n]
        others = [p for n, p in model.named_parameters() if "bias" in n]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=5e-2)
        shape = functools.partial(self._cosine, warmup=3, total=total_steps)
        self.lr_scheduler = lr_scheduler.LambdaLR(self.optimizer, shape)

    @staticmethod
    def _cosine(step, *, warmup, total):
        if step < warmup:
            return step / warmup
        return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))))

    def train(self):
        loader = DataLoader(self.train_dataset, 4, shuffle=True)
        run = trainers.attach(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.lr_scheduler,
            loader=loader,
            extra=self.state,
        )
        for batch in run.batches():
            loss = self.training_step(batch)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.lr_scheduler.step()
            self.model.zero_grad()
            self.state["log_history"].append({"loss": loss.item(), "lr": self.lr_scheduler.get_last_lr()[0]})
            if run.steps_done % 3 == 0:
                found = evaluate(self.model, DataLoader(self.eval_dataset, 8))
                best = self.state["best_metric"]
                self.state["best_metric"] = found if best is None else max(best, found)
            yield run, loss

    def training_step(self, batch):
        inputs, labels = batch
        loss = functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        return loss.detach()


def hugging():
    train, held_out = random_split(samples(32), [24, 8], torch.Generator().manual_seed(3))
    return HuggingTrainer(classifier(), train, held_out, total_steps=9).train()


class LitModule(nn.Module):
    """A module that knows its optimizers, its scheduler and its trainer."""

    def __init__(self):
        super().__init__()
        self.net = classifier()
        self.logged: dict[str, float] = {}
        self.trainer: Any = None

    def configure_optimizers(self):
        self.optimizer = torch.optim.Adam(self.parameters(), 0.01)
        self.scheduler = lr_scheduler.StepLR(self.optimizer, 4, 0.5)
        return [self.optimizer], [self.scheduler]

    def training_step(self, batch):
        x, y = batch
        loss = functional.cross_entropy(self.net(x), y)
        self.logged["train_loss"] = loss.item()
        return loss


class LitTrainer:
    def fit(self, module, loader):
        module.trainer = self
        (optimizer,), (scheduler,) = module.configure_optimizers()
        run = trainers.attach(model=module, optimizer=optimizer, scheduler=scheduler, loader=loader)
        for batch in run.batches():
            loss = module.training_step(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            yield run, loss


def lightning():
    return LitTrainer().fit(LitModule(), DataLoader(samples(), 4, shuffle=True))


def gan():
    """Two networks, two optimizers, fixed noise to look at, and a batch of real data for a picture."""
    latent = 3
    generator = nn.Sequential(nn.Linear(latent, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4), nn.Sigmoid())
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-2, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-2, betas=(0.5, 0.999))
    loader = DataLoader(samples(), 4, shuffle=True)
    fixed_noise = torch.randn(4, latent)
    real_batch = next(iter(loader))
    pictures = [real_batch[0]]
    run = trainers.attach(
        model={"G": generator, "D": critic}, optimizer={"G": optimizer_g, "D": optimizer_d}, loader=loader
    )
    for real, _ in run.batches():
        critic.zero_grad()
        error_real = functional.binary_cross_entropy_with_logits(critic(real), torch.ones(len(real), 1))
        error_real.backward()
        fake = generator(torch.randn(len(real), latent))
        error_fake = functional.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(len(real), 1))
        error_fake.backward()
        optimizer_d.step()
        generator.zero_grad()
        error_g = functional.binary_cross_entropy_with_logits(critic(fake), torch.ones(len(real), 1))
        error_g.backward()
        optimizer_g.step()
        if run.steps_done % 3 == 0:
            with torch.no_grad():
                generator.eval()
                pictures.append(generator(fixed_noise))
                generator.train()
        yield run, error_real + error_fake + error_g


class Shadow:
    """An exponential moving average of the weights, with the state_dict that such classes have."""

    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.backup: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(p, alpha=1 - self.decay)

    def apply(self, model):
        self.backup = {name: p.detach().clone() for name, p in model.named_parameters()}
        model.load_state_dict(self.shadow, strict=False)

    def restore(self, model):
        model.load_state_dict(self.backup, strict=False)
        self.backup = {}

    def state_dict(self):
        return {"decay": self.decay, "shadow": self.shadow}

    def load_state_dict(self, state):
        self.decay, self.shadow = state["decay"], state["shadow"]


def ema():
    """Three averages of the weights, as they are usually written; evaluation uses one of them."""
    model = classifier()
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    twin = copy.deepcopy(model).requires_grad_(False).eval()
    shadow = Shadow(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader, test_loader = DataLoader(samples(), 4, shuffle=True), DataLoader(samples(16), 8)
    run = trainers.attach(
        model={"model": model, "averaged": averaged, "twin": twin},
        optimizer=optimizer,
        loader=loader,
        extra={"shadow": shadow},
    )
    for x, y in run.batches():
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(model)
        shadow.update(model)
        with torch.no_grad():
            for theirs, ours in zip(twin.parameters(), model.parameters(), strict=True):
                theirs.lerp_(ours, 0.1)
        if run.steps_done % 4 == 3:
            shadow.apply(model)
            loss = loss.detach() + evaluate(model, test_loader) + twin(x).mean()
            shadow.restore(model)
        yield run, loss


def accumulation():
    """Gradients of four batches to a step of the optimizer; the learning rate changes with those steps."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 0.02)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=10)
    loader = DataLoader(samples(), 4, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    for x, y in run.batches():
        loss = functional.cross_entropy(model(x), y) / 4
        loss.backward()
        if run.steps_done % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        yield run, loss


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + functional.linear(functional.linear(x, self.down), self.up)


def lora():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    for parameter in model.parameters():
        parameter.requires_grad = False
    model[0], model[2] = LoRA(model[0]), LoRA(model[2])  # type: ignore[assignment]
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=0.02)
    scheduler = lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=9)
    loader = DataLoader(samples(), 4, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    for x, y in run.batches():
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        yield run, loss


def distillation():
    """A frozen teacher, which was trained just before by the same program."""
    teacher, student = classifier(), nn.Linear(4, 2)
    teacher_optimizer = torch.optim.Adam(teacher.parameters(), 0.05)
    teacher_scheduler = lr_scheduler.CosineAnnealingLR(teacher_optimizer, 2)
    teacher_scaler = torch.amp.GradScaler("cpu", init_scale=128)
    loader = DataLoader(samples(), 4, shuffle=True)
    for _ in range(2):
        for x, y in loader:
            teacher_optimizer.zero_grad()
            teacher_scaler.scale(functional.cross_entropy(teacher(x), y)).backward()
            teacher_scaler.step(teacher_optimizer)
            teacher_scaler.update()
        teacher_scheduler.step()
    teacher.eval().requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), 0.1, momentum=0.9, nesterov=True)
    run = trainers.attach(model=student, optimizer=optimizer, loader=loader)
    for x, y in run.batches():
        with torch.no_grad():
            wanted = functional.softmax(teacher(x) / 2, dim=-1)
        logits = student(x)
        soft = functional.kl_div(functional.log_softmax(logits / 2, dim=-1), wanted, reduction="batchmean")
        loss = 0.5 * soft + 0.5 * functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield run, loss


def warmup_cosine():
    """A warm-up and then a cosine; its curve is drawn first, with an optimizer of no use."""

    def schedule(optimizer):
        warmup = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
        cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)
        return lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[3])

    dummy = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    drawn, rates = schedule(dummy), []
    for _ in range(9):
        rates.append(drawn.get_last_lr()[0])
        dummy.step()
        drawn.step()
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = schedule(optimizer)
    run = trainers.attach(
        model=model, optimizer=optimizer, scheduler=scheduler, loader=DataLoader(samples(), 4, shuffle=True)
    )
    for x, y in run.batches():
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield run, loss


def mixed_precision():
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=128, growth_interval=2)
    loader = DataLoader(samples(), 4, shuffle=True)
    run = trainers.attach(model=model, optimizer=optimizer, scaler=scaler, loader=loader)
    for x, y in run.batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield run, loss


class Characters(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.embed = nn.Embedding(letters, 6)
        self.rnn = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, letters)

    def forward(self, x, hidden=None):
        out, hidden = self.rnn(self.embed(x), hidden)
        return self.head(out), hidden


def recurrent():
    """Truncated backpropagation through time: the hidden state goes on from batch to batch."""
    text = "the quick brown fox jumps over the lazy dog " * 4
    number = {letter: i for i, letter in enumerate(sorted(set(text)))}
    corpus = torch.tensor([number[letter] for letter in text])
    model = Characters(len(number))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    state: dict[str, Any] = {"hidden": None}
    run = trainers.attach(model=model, optimizer=optimizer, extra=state)
    for step in run.batches():
        at = step * 8 % (len(corpus) - 9)
        x, y = corpus[None, at : at + 8], corpus[None, at + 1 : at + 9]
        logits, hidden = model(x, state["hidden"])
        state["hidden"] = tuple(each.detach() for each in hidden)
        loss = functional.cross_entropy(logits[0], y[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield run, loss


class Walk:
    """An environment to act in: to the right end lies the reward."""

    def __init__(self):
        self.at = 2

    def reset(self):
        self.at = 2
        return self.seen()

    def seen(self):
        return numpy.eye(5, dtype=numpy.float32)[self.at]

    def act(self, action):
        self.at = min(4, max(0, self.at + (1 if action else -1)))
        return self.seen(), float(self.at == 4), self.at in (0, 4)


def replay():
    """Deep Q-learning: a buffer of transitions, a target network, exploration that fades."""
    policy, target = nn.Linear(5, 2), nn.Linear(5, 2)
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.RMSprop(policy.parameters(), 0.05)
    memory: deque[Any] = deque(maxlen=16)
    state: dict[str, Any] = {"memory": memory, "epsilon": 0.9, "returns": []}
    run = trainers.attach(model={"policy": policy, "target": target}, optimizer=optimizer, extra=state)
    for episode in run.batches():
        environment = Walk()
        seen, total, loss = environment.reset(), 0.0, torch.zeros(())
        for _ in range(6):
            with torch.no_grad():
                greedy = policy(torch.from_numpy(seen)).argmax().item()
            action = random.randrange(2) if random.random() < state["epsilon"] else int(greedy)
            following, reward, done = environment.act(action)
            memory.append((seen, action, reward, following, done))
            seen, total = following, total + reward
            if len(memory) >= 4:
                batch = random.sample(memory, 4)
                s, a, r, n, d = (torch.as_tensor(numpy.array(column)) for column in zip(*batch, strict=True))
                with torch.no_grad():
                    wanted = r.float() + 0.9 * target(n).max(1).values * (~d)
                loss = functional.smooth_l1_loss(policy(s).gather(1, a[:, None])[:, 0], wanted)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(policy.parameters(), 100)
                optimizer.step()
            if done:
                break
        state["epsilon"] *= 0.9
        state["returns"].append(total)
        if episode % 3 == 0:
            target.load_state_dict(policy.state_dict())
        yield run, loss + total


class Contrast(nn.Module):
    """Momentum contrast: two encoders and a queue of keys."""

    queue: torch.Tensor
    pointer: torch.Tensor

    def __init__(self, keys=12):
        super().__init__()
        self.encoder_q, self.encoder_k = nn.Linear(4, 3), nn.Linear(4, 3)
        self.encoder_k.load_state_dict(self.encoder_q.state_dict())
        for parameter in self.encoder_k.parameters():
            parameter.requires_grad = False
        self.register_buffer("queue", functional.normalize(torch.randn(3, keys), dim=0))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    def forward(self, one, other):
        q = functional.normalize(self.encoder_q(one), dim=1)
        with torch.no_grad():
            for theirs, ours in zip(self.encoder_k.parameters(), self.encoder_q.parameters(), strict=True):
                theirs.data = theirs.data * 0.9 + ours.data * 0.1
            k = functional.normalize(self.encoder_k(other), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], 1) / 0.1
        at = int(self.pointer)
        self.queue[:, at : at + len(k)] = k.T
        self.pointer[0] = (at + len(k)) % self.queue.shape[1]
        return functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


class TwoViews(Dataset):
    """Two random augmentations of a sample; the files are held in memory by a cache."""

    def __init__(self):
        self.base = samples()

    @functools.cache  # noqa: B019 - as such programs do
    def read(self, index):
        return self.base[index][0]

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        x = self.read(index)
        return x + 0.1 * torch.randn(4), x * float(numpy.random.uniform(0.8, 1.2))


def contrastive():
    model = Contrast()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(TwoViews(), 4, shuffle=True, drop_last=True)
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader)
    for one, other in run.batches():
        loss = model(one, other)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield run, loss


def mixup():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = lr_scheduler.MultiStepLR(optimizer, [3, 6], 0.1)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    run = trainers.attach(
        model=model, optimizer=optimizer, scheduler=scheduler, loader=DataLoader(samples(), 4, shuffle=True)
    )
    for x, y in run.batches():
        share = numpy.random.beta(0.4, 0.4)
        order = torch.randperm(len(x))
        out = model(share * x + (1 - share) * x[order])
        loss = share * criterion(out, y) + (1 - share) * criterion(out, y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield run, loss


def looks_at_some():
    """Every few steps it looks at some batches of the held-out data, in three usual ways."""
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader, val_loader = DataLoader(samples(), 4, shuffle=True), DataLoader(samples(16), 2, shuffle=True)
    x_val, _ = next(iter(val_loader))
    run = trainers.attach(model=model, optimizer=optimizer, loader=loader)
    for x, y in run.batches():
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if run.steps_done % 2 == 0:
            model.eval()
            with torch.no_grad():
                for i, (a, _) in enumerate(val_loader):
                    if i >= 2:
                        break
                    loss = loss + 0.1 * model(a).mean()
                loss = loss + sum(model(a).mean() for a, _ in itertools.islice(val_loader, 2)) + model(x_val).mean()
                val_iter = iter(val_loader)
                for _ in range(2):
                    a, _ = next(val_iter)
                    loss = loss + 0.1 * model(a).mean()
            model.train()
        yield run, loss


def early_stopping():
    """Stops when the held-out loss no longer falls, and goes back to the best weights."""
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    loader, val_loader = DataLoader(samples(), 4, shuffle=True), DataLoader(samples(16), 8)
    state: dict[str, Any] = {"best": float("inf"), "counter": 0, "weights": copy.deepcopy(model.state_dict())}
    run = trainers.attach(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, extra=state)
    for x, y in run.batches():
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        val_loss = 1 - evaluate(model, val_loader)
        scheduler.step(val_loss)
        if val_loss < state["best"]:
            state["best"], state["counter"] = val_loss, 0
            state["weights"] = copy.deepcopy(model.state_dict())
        else:
            state["counter"] += 1
            if state["counter"] >= 5:
                run.stop()
        yield run, loss
    model.load_state_dict(state["weights"])


def half_labelled():
    """Learns from two loaders at once; the second one is read by the program itself, over and over."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    unlabelled = trainers.ResumableLoader(samples(14), 4, seed=7)
    run = trainers.attach(
        model=model,
        optimizer=optimizer,
        loader=DataLoader(samples(), 4, shuffle=True),
        extra={"unlabelled": unlabelled},
    )
    endless = itertools.chain.from_iterable(itertools.repeat(unlabelled))
    for x, y in run.batches():
        u, _ = next(endless)
        loss = functional.cross_entropy(model(x), y)
        weak = model(u + 0.01 * torch.randn_like(u)).detach().softmax(-1)
        loss = loss + functional.cross_entropy(model(u + 0.1 * torch.randn_like(u)), weak.argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield run, loss


def reptile():
    """Meta-learning: each step trains on a task with an optimizer of its own, and moves a little towards the result."""
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    meta = torch.optim.SGD(model.parameters(), 0.5)
    run = trainers.attach(model=model, optimizer=meta)
    for _ in run.batches():
        phase = random.uniform(0, math.pi)
        x = torch.rand(8, 1) * 6
        learner = copy.deepcopy(model)
        inner = torch.optim.Adam(learner.parameters(), 0.02)
        for _ in range(3):
            loss = functional.mse_loss(learner(x), torch.sin(x + phase))
            inner.zero_grad()
            loss.backward()
            inner.step()
        meta.zero_grad()
        for ours, theirs in zip(model.parameters(), learner.parameters(), strict=True):
            ours.grad = ours.data - theirs.data
        meta.step()
        yield run, loss
