"""The cost of exact resume per step and per checkpoint: gradients in flight, buffers, data sets and the fence.

    python benchmarks/exactness.py [--quick] [--json]

The model has the parameters of a 12-layer transformer (148 tensors; 12.6 million numbers, --quick: 3.2) and AdamW. CPU
time of this process, one thread, median of the rounds. Gradients are used by the optimizer and then dropped, as in a
loop that begins with `optimizer.zero_grad()`; once that has been observed, checkpoints omit them.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch
from torch.utils.data import Dataset

from benchmarks._claims import Claim, show
from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.state import capture
from trainers.checkpoint.writer import save
from trainers.data.memory import memory, require_unchanged
from trainers.loop.transient import Transient

JOB = "job"


class Numbers(Dataset[int]):
    """A data set with a typical number of attributes."""

    def __init__(self) -> None:
        self.root, self.split, self.size, self.scale, self.names = "/data", "train", 224, 0.5, ["a"] * 1000
        self.mean, self.transform = torch.zeros(3), object()

    def __getitem__(self, index: int) -> int:
        return index


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the numbers, fewer rounds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    width, rounds = (128, 5) if options.quick else (256, 15)
    with tempfile.TemporaryDirectory() as folder:
        return show("Exact resume", claims(Path(folder), width, rounds), as_json=options.json)


def claims(root: Path, width: int, rounds: int) -> list[Claim]:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    model.register_buffer("mask", torch.ones(512, 512), persistent=False)
    optimizer = torch.optim.AdamW(model.parameters())
    plain = torch.optim.AdamW(model.parameters())
    batch = torch.rand(1, 8, width)

    def train(by: torch.optim.Optimizer) -> None:
        by.zero_grad()
        model(batch).sum().backward()
        by.step()

    transient = Transient({"model": model, "optimizer": optimizer})

    def trained() -> None:
        train(optimizer)
        transient.step_ended()

    def watch() -> None:
        transient._stepped(optimizer)
        transient.step_ended()

    step_s = median_s(lambda: train(plain), rounds)
    for _ in range(10):  # until it has been observed that used gradients are dropped
        trained()
    watch_s = median_s(watch, rounds)

    store.prepare(root, JOB)
    store.write_fence(root, JOB, 1, None)
    numbers = itertools.count()

    def write(*, transients: bool = True, gradients: bool = False) -> None:
        items = {"model": capture(model), "optimizer": capture(optimizer)}
        if transients:
            items["transient"] = transient.capture()
        if gradients:
            items["gradients"] = dict(transient._gradients())
        save(root, JOB, ManifestName(1, next(numbers), 1), items=items, position=None, keep=1)

    # Interleaved, so that other load on this machine affects all three equally.
    kinds: list[Callable[[], object]] = [lambda: write(transients=False), write, lambda: write(gradients=True)]
    bare_s, exact_s, gradients_s = medians_s(kinds, rounds, before=trained)
    owner_s = median_s(lambda: store.require_ownership(root, JOB, 1), 20 * rounds)
    dataset = Numbers()
    look_s = median_s(lambda: require_unchanged(memory(dataset), memory(dataset)), 20 * rounds)
    return [
        Claim("watching gradients, per step", 1e6 * watch_s, "us"),
        Claim("the same, relative to a step (one sequence of 8)", 100 * watch_s / step_s, "%", 3.0),
        Claim("checking the fence, per step", 1e6 * owner_s, "us", 1000.0),
        Claim("checkpoint without gradients and buffers", 1e3 * bare_s, "ms"),
        Claim("added by a buffer and used gradients", 100 * (exact_s / bare_s - 1), "%", 15.0),
        Claim("added by gradients in flight", 100 * (gradients_s / bare_s - 1), "%"),
        Claim("checking a data set, per sample of the first batch", 1e6 * look_s, "us", 1000.0),
    ]


def median_s(act: Callable[[], object], rounds: int) -> float:
    """CPU seconds of one call."""
    return medians_s([act], rounds)[0]


def medians_s(
    acts: Sequence[Callable[[], object]], rounds: int, before: Callable[[], object] = lambda: None
) -> list[float]:
    """CPU seconds of one call of each, with `before` done before each."""
    spent: list[list[float]] = [[] for _ in acts]
    for _ in range(rounds):
        for act, times in zip(acts, spent, strict=True):
            before()
            began = time.process_time()
            act()
            times.append(time.process_time() - began)
    return [statistics.median(times) for times in spent]


if __name__ == "__main__":
    raise SystemExit(main())
