"""The cost of a checkpoint for a training loop, compared with torch.save and torch's distributed checkpoints (DCP).

    python -m benchmarks.checkpoint_overhead [--quick] [--json]

A step sleeps for 0.25 s, like a loop that waits for its GPU, and does small computations in torch; all numbers of the
state change before the next checkpoint. The benchmark measures how much longer the steps are, from the checkpoint until
it is durable, than as many steps without one. The methods take turns in random order, in one process with one thread.

- torch.save: training waits until the file is written and synced.
- DCP: `async_save` with a stager whose shared memory is used again, writing in a thread or in a process. The better of
  both counts.
- Tradewind: trainers.checkpoint.background, with the hashes of all bytes and the deletion of the previous checkpoint.

States: ResNet-50 with SGD and momentum (205 MB) and GPT-2 small with AdamW (1.49 GB). --quick: ResNet-50, 2 rounds.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse, async_save

from benchmarks._claims import Claim, show
from trainers.checkpoint import store
from trainers.checkpoint.background import Background, Snapshot
from trainers.checkpoint.background_process import Settings
from trainers.checkpoint.manifest import ManifestName

STEP_S, OPERATIONS, LEAST_STEPS = 0.25, 300, 8
ROUNDS, QUICK_ROUNDS = 6, 2
BUDGET = 0.035
"""CheckFreq's share of the time for checkpoints (Mohan et al., FAST 2021)."""
State = Mapping[str, torch.Tensor]
Begin = Callable[[State, int], Callable[[], bool]]
"""Begins a checkpoint of a state; returns a function that tests whether it is durable."""


def _shapes_of_gpt2_small() -> list[tuple[int, ...]]:
    width = 768
    block = [(width, 3 * width), (3 * width,), (width, width), (width,), (width, 4 * width), (4 * width,)]
    block += [(4 * width, width), (width,), (width,), (width,), (width,), (width,)]
    return [(50257, width), (1024, width), *block * 12, (width,), (width,)]


GPT2_SMALL = _shapes_of_gpt2_small()
"""Bytes of its parameters."""


@dataclass
class Cost:
    """The results of one method: the additional time of its steps, and the time until a checkpoint was durable (s)."""

    extra_s: list[float] = field(default_factory=list)
    durable_s: list[float] = field(default_factory=list)

    @property
    def typical_s(self) -> float:
        return statistics.median(self.extra_s)


def resnet50() -> dict[str, torch.Tensor]:
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [(width, inside, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            shapes += [(each,) for each in (width, width, 4 * width) for _ in range(2)]
            if block == 0:
                shapes += [(4 * width, inside, 1, 1), (4 * width,), (4 * width,)]
            inside = 4 * width
    return _state([*shapes, (1000, 2048), (1000,)], copies=2)


def gpt2_small() -> dict[str, torch.Tensor]:
    return _state(GPT2_SMALL, copies=3)


def _state(shapes: list[tuple[int, ...]], copies: int) -> dict[str, torch.Tensor]:
    """Parameters, and the same number of values for each moment of the optimizer."""
    names = ("parameter", "momentum") if copies == 2 else ("parameter", "first", "second")
    return {f"{name}.{number}": torch.randn(shape) for name in names for number, shape in enumerate(shapes)}


def step(numbers: torch.Tensor) -> None:
    time.sleep(STEP_S)
    for _ in range(OPERATIONS):
        numbers.mul_(1.0001)


def steps_s(least: int, until: Callable[[], bool]) -> tuple[int, float, float]:
    """Steps until the condition holds, at least `least` of them: (their number, their seconds, seconds until it
    held)."""
    numbers, done, began_s, there_s = torch.ones(64), 0, time.monotonic(), math.nan
    while done < least or math.isnan(there_s):
        step(numbers)
        done += 1
        if math.isnan(there_s) and until():
            there_s = time.monotonic() - began_s
    return done, time.monotonic() - began_s, there_s


def measured(state: State, methods: Mapping[str, Begin], rounds: int) -> dict[str, Cost]:
    """The cost of each method, in rounds of random order; the first round, which allocates memory and starts processes,
    is not counted."""
    order, costs = random.Random(1), {name: Cost() for name in methods}
    number = 0
    for turn in range(rounds + 1):
        plain_s = steps_s(LEAST_STEPS, lambda: True)[1] / LEAST_STEPS
        for name in order.sample(list(methods), len(methods)):
            number += 1
            for tensor in state.values():
                tensor.add_(0.001)
            began_s = time.monotonic()
            durable = methods[name](state, number)
            held_s = time.monotonic() - began_s
            count, took_s, durable_s = steps_s(LEAST_STEPS, durable)
            if turn:
                costs[name].extra_s.append(held_s + took_s - count * plain_s)
                costs[name].durable_s.append(held_s + durable_s)
    return costs


@contextmanager
def saving(folder: Path) -> Iterator[Begin]:
    """torch.save and fsync."""

    def begin(state: State, number: int) -> Callable[[], bool]:
        with (folder / f"{number}.pt").open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        for old in folder.glob("*.pt"):
            if old.name != f"{number}.pt":
                old.unlink()
        return lambda: True

    yield begin


@contextmanager
def distributed(folder: Path, kind: AsyncCheckpointerType) -> Iterator[Begin]:
    """DCP with reused shared memory."""
    stager = DefaultStager(StagingOptions(False, True, False, False))

    def begin(state: State, number: int) -> Callable[[], bool]:
        for old in folder.iterdir():
            shutil.rmtree(old)
        response = async_save(
            {"state": dict(state)},
            checkpoint_id=str(folder / str(number)),
            async_checkpointer_type=kind,
            async_stager=stager,
        )
        upload = response.upload_completion if isinstance(response, AsyncSaveResponse) else response

        def durable() -> bool:
            if upload.done():
                upload.result()
            return upload.done()

        return durable

    yield begin
    stager.close()


@contextmanager
def beside(folder: Path, most: int = 1) -> Iterator[Background]:
    """Tradewind's, ready to begin."""
    root, control = str(folder / "checkpoints"), folder / "control"
    store.prepare(root, "job")
    store.write_fence(root, "job", 1, None)
    background = Background(Settings(root, "job", 1, str(control), (5.0, 30.0, 2)), most=most)
    yield background
    background.close()


@contextmanager
def ours(folder: Path) -> Iterator[Begin]:
    with beside(folder) as background:

        def begin(state: State, number: int) -> Callable[[], bool]:
            begun(background, state, number)

            def durable() -> bool:
                for ended in background.ended():
                    if ended.name is None:
                        raise SystemExit(f"not written: {ended.error}")
                return not background.under_way

            return durable

        yield begin


def begun(background: Background, state: State, number: int) -> None:
    """Begin as soon as memory is available."""
    name = ManifestName(1, number, 1)
    while not background.begin(name, lambda: Snapshot({"state": dict(state)}, number)):
        if not background.possible:
            raise SystemExit("not enough memory for a copy of the state")
        background.ended(wait=background.full)
        time.sleep(0.001)


def in_flight(state: State, folder: Path, most: int, seconds: float) -> tuple[float, float]:
    """Checkpoints one after the other, as many as possible: (seconds from one to the next, their cost as a share of the
    steps' time)."""
    folder.mkdir()
    numbers, done = torch.ones(64), 0
    with beside(folder, most) as background:
        begun(background, state, 1)
        background.ended(wait=True)
        count, plain_s, _ = steps_s(LEAST_STEPS, lambda: True)
        began_s, number = time.monotonic(), 1
        while time.monotonic() - began_s < seconds:
            step(numbers)
            done += 1
            for tensor in state.values():
                tensor.add_(0.001)
            background.ended()
            number += background.begin(ManifestName(1, number + 1, 1), lambda: Snapshot({"state": dict(state)}, 0))
        took_s = time.monotonic() - began_s
    return took_s / max(number - 1, 1), took_s / (done * plain_s / count) - 1


def compared(name: str, state: State, rounds: int, target: float, folder: Path) -> list[Claim]:
    """The claims about one state."""
    folders = {each: folder / f"{name}-{each}" for each in ("saved", "thread", "process", "ours")}
    for each in folders.values():
        each.mkdir()
    with (
        saving(folders["saved"]) as saved,
        distributed(folders["thread"], AsyncCheckpointerType.THREAD) as thread,
        distributed(folders["process"], AsyncCheckpointerType.PROCESS) as process,
        ours(folders["ours"]) as own,
    ):
        methods = {"torch.save": saved, "DCP, thread": thread, "DCP, process": process, "Tradewind": own}
        costs = measured(state, methods, rounds)
    claims = []
    for method, cost in costs.items():
        claims.append(Claim(f"{name}, {method}: a checkpoint costs", cost.typical_s, "s"))
        claims.append(Claim(f"{name}, {method}: durable after", statistics.median(cost.durable_s), "s"))
        shortest = cost.typical_s / BUDGET
        claims.append(Claim(f"{name}, {method}: within {BUDGET:.1%} of the time every", shortest, "s"))
    cost, best = costs["Tradewind"], min(costs["DCP, thread"].typical_s, costs["DCP, process"].typical_s)
    rule = max(math.ceil((statistics.median(cost.durable_s) - cost.typical_s) / STEP_S), 1) * STEP_S
    return [
        Claim(f"{name}: Tradewind over the better DCP", cost.typical_s / best, "x", target),
        Claim(f"{name}: CheckFreq's rule (when the last is durable) would save every", rule, "s"),
        *claims,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"ResNet-50 only, {QUICK_ROUNDS} rounds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary folder")
    options = parser.parse_args()
    torch.manual_seed(0)
    load, rounds = os.getloadavg()[0], QUICK_ROUNDS if options.quick else ROUNDS
    with tempfile.TemporaryDirectory(dir=options.folder) as where:
        folder = Path(where)
        dist.init_process_group("gloo", init_method=f"file://{folder / 'peers'}", rank=0, world_size=1)
        claims = compared("ResNet-50", resnet50(), rounds, 0.55, folder)
        if not options.quick:
            for most in (1, 2, 3):
                every_s, share = in_flight(resnet50(), folder / f"flight-{most}", most, 15.0)
                claims.append(Claim(f"ResNet-50, {most} in flight: one every", every_s, "s"))
                claims.append(Claim(f"ResNet-50, {most} in flight: steps take longer by", 100 * share, "%"))
            claims += compared("GPT-2 small", gpt2_small(), rounds, 0.85, folder)
        dist.destroy_process_group()
    notes = [f"{rounds} rounds, medians. Load of the machine at the start: {load:.1f} on {os.cpu_count()} cores."]
    return show("Checkpoints beside the training", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
