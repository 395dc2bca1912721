"""A training program that computes the same on one process, with DistributedDataParallel and with FSDP2, and notes its
state as whole tensors when it begins and when it ends."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import trainers

WORDS, WIDTH, SAMPLES = 7, 6, 8
"""7 rows are divided unevenly, 3 rows leave one of four ranks without any."""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3), nn.Tanh(), nn.Linear(3, WIDTH)) for _ in range(2)
        )
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight  # tied
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen.add_(1)
        h = self.words(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h * self.scale)


def main(way, steps):
    """`way`: single, ddp or fsdp."""
    if way != "single":
        dist.init_process_group("gloo")
    rank, ranks = (0, 1) if way == "single" else (dist.get_rank(), dist.get_world_size())
    torch.manual_seed(1)
    inner = Model()
    model: nn.Module = inner
    if way == "ddp":
        model = DistributedDataParallel(inner)
    elif way == "fsdp":
        for block in inner.blocks:
            fully_shard(block)
        fully_shard(inner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    run = trainers.attach(model=model, optimizer=optimizer, scheduler=scheduler, steps=steps)
    begun = False
    for step in run.batches():
        if not begun:
            begun = note(inner, optimizer, run.output_dir / f"begin-{way}-{ranks}-{step}.pt", rank)
        numbers = torch.Generator().manual_seed(step)
        x = torch.randint(WORDS, (SAMPLES, 4), generator=numbers)
        mine = slice(rank * SAMPLES // ranks, (rank + 1) * SAMPLES // ranks)
        logits = model(x[mine, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, WORDS), x[mine, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        mean = loss.detach().clone()
        if ranks > 1:
            dist.all_reduce(mean)
        run.step(mean / ranks)
    note(inner, optimizer, run.output_dir / f"end-{way}-{ranks}-{run.steps_done}.pt", rank)
    if way != "single":
        dist.destroy_process_group()


def note(model, optimizer, path, rank):
    state = {f"model.{name}": whole(tensor) for name, tensor in model.state_dict().items()}
    for number, held in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{number}.{name}": whole(value) for name, value in held.items()}
    if rank == 0:
        torch.save(state, path)
    return True


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()
