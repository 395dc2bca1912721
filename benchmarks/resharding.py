"""A job that moves between one process, DistributedDataParallel and FSDP2: is its state the same, and does training
continue?

    python -m benchmarks.resharding [--quick] [--json]

A small model with tied weights, AdamW and a schedule trains 20 steps with one process, two of DistributedDataParallel,
two or four of FSDP2 (gloo, tests/unit/trainers/programs/resharded.py). Each of the other three continues from its
checkpoint for 20 steps. The benchmark compares the whole tensors of model and optimizer after the restore, bit for bit,
and the losses of these steps with those of the uninterrupted saving kind. --quick: two pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch
import torch._dynamo

from benchmarks._claims import Claim, show
from tests.unit.trainers import programs
from trainers import runner
from trainers.checkpoint import store
from trainers.control import EXIT_CODES, ControlDirectory
from trainers.loop import session  # noqa: F401  likewise
from trainers.spec import TrainerSpec

LEG = 20
Kind = tuple[str, int]
KINDS: tuple[Kind, ...] = (("single", 1), ("ddp", 2), ("fsdp", 2), ("fsdp", 4))
QUICK: tuple[tuple[Kind, Kind], ...] = ((("fsdp", 2), ("single", 1)), (("ddp", 2), ("fsdp", 4)))
TOLERANCE = 1e-5


def trained(folder: Path, generation: int, kind: Kind, steps: int) -> dict[int, float]:
    """Hand the job in this folder to a run of this kind, which trains until `steps`. Returns the loss of each step."""
    root, run, (way, ranks) = str(folder / "checkpoints"), folder / f"run-{generation}", kind
    store.write_fence(root, "job", generation, store.newest_counting(root, "job", generation))
    run.mkdir(parents=True)
    spec = TrainerSpec(
        job_id="job",
        run_id=run.name,
        generation=generation,
        attempt=1,
        checkpoint_root=root,
        control_dir=str(run / "control"),
        output_dir=str(folder / "outputs"),
        workdir=str(Path(next(iter(programs.__path__)))),
        entry="resharded:main",
        args={"way": way},
        steps=steps,
        processes=ranks,
    )
    pid = os.fork()
    if pid == 0:
        os._exit(EXIT_CODES.get(runner.run(spec), 1))
    os.waitpid(pid, 0)
    progress = ControlDirectory(spec.control_dir).progress()
    if progress is None or progress.state != "finished":
        raise SystemExit(f"{kind}: {(run / 'log').read_text()}")
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: float.fromhex(line["loss_hex"]) for line in lines}


def compared(folder: Path, saver: Kind, readers: Sequence[Kind]) -> list[Claim]:
    """The claims about the readers of one kind's checkpoint."""
    whole = trained(folder / "whole", 1, saver, 2 * LEG)
    trained(folder / "saved", 1, saver, LEG)
    before = noted(folder / "saved", "end", saver)
    claims = []
    for number, reader in enumerate(readers):
        there = folder / f"read-{number}"
        shutil.copytree(folder / "saved", there)
        losses = trained(there, 2, reader, 2 * LEG)
        after = noted(there, "begin", reader)
        wrong = [name for name in before.keys() | after.keys() if not same(before.get(name), after.get(name))]
        far = max(abs(losses[step] - whole[step]) for step in range(LEG + 1, 2 * LEG + 1))
        names = " to ".join(f"{way} x{ranks}" for way, ranks in (saver, reader))
        claims.append(Claim(f"{names}: tensors that differ, of {len(before)}", len(wrong), "tensors", 0))
        claims.append(Claim(f"{names}: the next {LEG} losses differ by at most", far, "", TOLERANCE))
    return claims


def noted(folder: Path, when: str, kind: Kind) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(folder / "outputs" / f"{when}-{kind[0]}-{kind[1]}-{LEG}.pt")
    return found


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and one.dtype == other.dtype and torch.equal(one, other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two pairs")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    pairs = QUICK if options.quick else tuple((a, b) for a in KINDS for b in KINDS if a != b)
    claims = []
    with tempfile.TemporaryDirectory() as folder:
        for saver in dict.fromkeys(saver for saver, _ in pairs):
            readers = [reader for each, reader in pairs if each == saver]
            claims += compared(Path(folder) / "-".join(map(str, saver)), saver, readers)
    return show("Continued by another kind", claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
