"""The cost of several ranks per step and per checkpoint: agreement, adding gradients in a fixed order, saving together.

    python benchmarks/ranks.py [--quick] [--json]

Two and four processes on this host, connected by gloo, one thread each; medians of wall time on rank 0. With more
processes than cores, most of it is waiting for the scheduler. The model is a stack of linear layers with AdamW: 4
million numbers (--quick: 1 million).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks._claims import Claim, show
from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.state import capture
from trainers.checkpoint.together import save_together
from trainers.checkpoint.writer import save
from trainers.control import TrainerState
from trainers.loop.peers import Group, Seen, steps_until_next
from trainers.loop.summing import sum_in_rank_order
from trainers.process.launcher import launch
from trainers.process.ranks import Rank
from trainers.spec import TrainerSpec

JOB = "job"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the numbers, fewer rounds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    width, rounds = (512, 10) if options.quick else (1024, 30)
    with tempfile.TemporaryDirectory() as folder:
        claims = [claim for ranks in (2, 4) for claim in _claims(Path(folder), ranks, width, rounds)]
    return show("Several ranks", claims, as_json=options.json)


def _claims(folder: Path, ranks: int, width: int, rounds: int) -> list[Claim]:
    root, run = folder / f"checkpoints-{ranks}", folder / f"run-{ranks}"
    store.prepare(root, JOB)
    store.write_fence(root, JOB, 1, None)
    spec = TrainerSpec(
        job_id=JOB,
        run_id="run",
        generation=1,
        attempt=1,
        checkpoint_root=str(root),
        control_dir=str(run / "control"),
        output_dir=str(run),
        workdir=str(folder),
        processes=ranks,
    )
    launch(spec, partial(_measure, width=width, rounds=rounds))
    if not (run / "found.json").exists():
        raise SystemExit((run / "log").read_text())
    found = json.loads((run / "found.json").read_text())
    of = f"{ranks} ranks"
    short_s = 0.005
    steps = steps_until_next(short_s, found["agree_s"])
    return [
        Claim(f"{of}: agree at a step boundary", found["agree_s"] * 1e3, "ms"),
        Claim(f"{of}: of a loop with steps of 5 ms", 100 * found["agree_s"] / (steps * short_s), "%", 3.0),
        Claim(f"{of}: a step, gradients added by all-reduce", found["reduced_s"] * 1e3, "ms"),
        Claim(f"{of}: a step, gradients added in rank order", found["summed_s"] * 1e3, "ms"),
        Claim(f"{of}: checkpoint, bytes relative to one process", found["together_bytes"] / found["bytes"], "x", 1.05),
        Claim(f"{of}: checkpoint, time relative to one process", found["together_s"] / found["save_s"], "x"),
    ]


def _measure(rank: Rank, width: int, rounds: int) -> TrainerState:
    """The life of one rank."""
    os.environ.update(rank.variables())
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    peers = Group(rank.local_rank == 0, time.monotonic)
    found: dict[str, float] = {"agree_s": _median(lambda: peers.agree(Seen(), 1, 0.1), 20 * rounds)}
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
    for way in ("reduced_s", "summed_s"):
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters())
        if way == "summed_s":
            sum_in_rank_order(parallel)
        found[way] = _median(partial(_step, parallel, optimizer, torch.rand(8, width)), rounds)
    items = {"model": capture(model), "optimizer": capture(optimizer), "rng": torch.get_rng_state() + rank.rank}
    root, position = rank.spec.checkpoint_root, {"batch": 0}

    def together(step: int) -> None:
        name, ready = ManifestName(1, step, 1), lambda: None
        save_together(root, JOB, name, peers=peers, items=items, position=position, keep=1, before_commit=ready)

    def alone(step: int) -> None:
        if rank.rank == 0:
            save(root, JOB, ManifestName(1, step, 1), items=items, position=position, keep=1)
        peers.share(None)

    for way, write in (("together", together), ("save", alone)):
        seconds = []
        for number in range(3):
            _step(parallel, optimizer, torch.rand(8, width))  # otherwise the chunks would already exist
            began = time.perf_counter()
            write((100 if way == "save" else 1) + number)
            seconds.append(time.perf_counter() - began)
        found[f"{way}_s"] = statistics.median(seconds)
        chunks = Path(root, JOB, "chunks")
        found["bytes" if way == "save" else "together_bytes"] = sum(each.stat().st_size for each in chunks.iterdir())
        peers.share(None)
    if rank.rank == 0:
        Path(rank.spec.output_dir, "found.json").write_text(json.dumps(found))
    return "finished"


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def _median(work: Callable[[], object], rounds: int) -> float:
    seconds: Sequence[float] = [_timed(work) for _ in range(rounds)]
    return statistics.median(seconds)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    raise SystemExit(main())
