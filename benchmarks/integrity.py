"""Damage to stored checkpoints: is it detected, and is an intact checkpoint restored?

    python -m benchmarks.integrity [--quick] [--json] [--seed N]

A job of three ranks has saved three checkpoints in two generations, and a part of another one in progress. 10,000
times, a random object (chunk, manifest, part or fence) is damaged: a bit is flipped, the object is truncated, deleted,
replaced by a copy of another one of its kind, or exchanged with it. Then the job is restored as in a run.

It must end in one of two ways: every restored byte is a saved byte of the newest undamaged checkpoint; or, if the fence
that says which checkpoints count is damaged, an error names it, and the repair command then restores it. A damaged part
must not be committed. A missing manifest cannot be detected: its checkpoint does not exist, and the previous one is
restored. --quick: 1,000 times.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch

from benchmarks._claims import Claim, show
from tests.unit.trainers.test_together import Connected
from trainers.checkpoint import parts, store
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.reader import Loaded, load_newest
from trainers.checkpoint.repair import repair_fences
from trainers.checkpoint.together import save_together
from trainers.errors import DamagedCheckpoint, StoreUnavailable

TIMES, QUICK_TIMES = 10_000, 1_000
RANKS, JOB, NOW = 3, "job", 2
STEPS = ((1, 10), (1, 20), (NOW, 30))
"""Generation and step of each checkpoint."""
UNDER_WAY = ManifestName(NOW, 40, 1)
WAYS = ("flipped", "cut", "missing", "duplicated", "swapped")


@dataclass
class Found:
    """The outcomes of the damages; `wrong` describes the undetected ones."""

    times: Counter[str] = field(default_factory=Counter)
    older: int = 0
    repaired: int = 0
    wrong: list[str] = field(default_factory=list)


def state(step: int, rank: int) -> dict[str, Any]:
    """Some tensors are equal on all ranks, some in all checkpoints."""
    numbers = torch.Generator().manual_seed(step)
    return {
        "model": {"frozen": torch.arange(300.0), "weight": torch.rand(40, 7, generator=numbers)},
        "rng": {"torch": torch.full((16,), rank * 100 + step, dtype=torch.uint8), "python": [rank, step]},
    }


def saved(folder: Path) -> None:
    """The job in the state that its runs have left."""
    store.prepare(folder, JOB)
    before: tuple[int, str | None] = (0, None)
    for generation, step in STEPS:
        if generation != before[0]:
            store.write_fence(folder, JOB, generation, before[1])
        before = generation, str(saved_by_all(folder, ManifestName(generation, step, 1)))
    for rank in range(1, RANKS):
        parts.put_part(folder, JOB, UNDER_WAY, rank, "now", {"items": {}, "position": rank, "pieces": []})


def saved_by_all(folder: Path, name: ManifestName) -> ManifestName:
    """The ranks are threads."""
    barrier, said = threading.Barrier(RANKS), [b""] * RANKS

    def save(rank: int) -> ManifestName:
        return save_together(
            folder,
            JOB,
            name,
            peers=connected(rank, said, barrier),
            items=state(name.step, rank),
            position={"step": name.step},
            keep=9,
            before_commit=lambda: None,
        )

    with ThreadPoolExecutor(RANKS) as ranks:
        (committed,) = {*ranks.map(save, range(RANKS))}
    return committed


def connected(rank: int, said: list[bytes], barrier: threading.Barrier) -> Any:
    """One of the ranks."""
    return Connected(rank, said, barrier)  # type: ignore[no-untyped-call]


def same(loaded: Loaded, rank: int) -> bool:
    """Whether it equals the state that this rank saved in this step."""
    wanted, step = state(loaded.name.step, rank), loaded.name.step
    equal = all(torch.equal(loaded.items["model"][name], value) for name, value in wanted["model"].items())
    rng = torch.equal(loaded.items["rng"]["torch"], wanted["rng"]["torch"])
    return equal and rng and loaded.items["rng"]["python"] == [rank, step] and loaded.position == {"step": step}


@contextmanager
def damaged(files: list[Path], way: str, chance: random.Random) -> Iterator[tuple[str, set[Path]]]:
    """Damage one or two of these files; yields the damage and the files. Afterwards, the files are as before."""
    file = chance.choice(files)
    before = file.read_bytes()
    others = [each for each in files if each.parent == file.parent and each.read_bytes() != before]
    if way in ("duplicated", "swapped") and not others:
        way = "flipped"
    hurt, kept = {file}, {file: before}
    if way == "flipped":
        bit = chance.randrange(8 * len(before))
        changed = bytearray(before)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
    elif way == "cut":
        file.write_bytes(before[: chance.randrange(len(before))])
    elif way == "missing":
        file.unlink()
    else:
        other = chance.choice(others)
        kept[other] = other.read_bytes()
        file.write_bytes(kept[other])
        if way == "swapped":
            other.write_bytes(before)
            hurt.add(other)
    try:
        yield f"{way} {file.parent.name}/{file.name}", hurt
    finally:
        for each, content in kept.items():
            each.write_bytes(content)


def expected(needed: dict[int, set[Path]], hurt: set[Path]) -> int:
    """The step of the newest undamaged checkpoint."""
    return max((step for step, files in needed.items() if not files & hurt), default=-1)


def intact(folder: Path, step: int) -> bool:
    """Whether the checkpoint of a step verifies."""
    generation = dict((step, generation) for generation, step in STEPS)[step]
    try:
        store.verify(folder, JOB, ManifestName(generation, step, 1))
    except DamagedCheckpoint:
        return False
    return True


def needed_by(folder: Path) -> dict[int, set[Path]]:
    """The files of each checkpoint."""
    found = {}
    for name in store.manifests(folder, JOB):
        chunks = store.read_manifest(folder, JOB, name).chunks()
        found[name.step] = {folder / JOB / "manifests" / f"{name}.json", *(folder / JOB / "chunks" / c for c in chunks)}
    return found


def try_once(folder: Path, needed: dict[int, set[Path]], chance: random.Random, found: Found) -> None:
    """Damage something, restore, and judge."""
    kind = chance.choice(("chunks", "chunks", "manifests", "parts", "fence"))
    files = sorted((folder / JOB / kind).iterdir())
    with damaged(files, chance.choice(WAYS), chance) as (what, hurt):
        found.times[what.partition("/")[0]] += 1
        if kind == "parts":
            judge_parts(folder, what, found)
            return
        try:
            loaded = load_newest(folder, JOB, NOW)
        except DamagedCheckpoint as damage:
            if kind == "fence" and "fence" in damage.message:
                repair(folder, what, found)
            else:
                found.wrong.append(f"{what}: {damage}")
            return
        for each in (each for each, files in needed.items() if files & hurt):
            if intact(folder, each):
                found.wrong.append(f"{what}: the checkpoint of step {each} passes for intact")
        step = expected(needed, hurt)
        if loaded is None or loaded.name.step != step or not same(loaded, 0):
            found.wrong.append(f"{what}: restored {loaded and loaded.name}, not step {step}")
        found.older += step != STEPS[-1][1]


def judge_parts(folder: Path, what: str, found: Found) -> None:
    """A damaged part never arrives, so nothing is committed."""
    ticks = iter(range(10_000))
    try:
        parts.await_parts(
            folder,
            JOB,
            UNDER_WAY,
            RANKS,
            "now",
            lambda: None,
            monotonic=lambda: 300.0 * next(ticks),
            sleep=lambda _: None,
        )
    except StoreUnavailable:
        return
    found.wrong.append(f"{what}: its part was used")


def repair(folder: Path, what: str, found: Found) -> None:
    """The repair of the fences must bring back a run's start. A fence that is lost needs it as an argument."""
    starts = "1-20-1"
    repair_fences(folder, JOB, starts)
    loaded = load_newest(folder, JOB, NOW)
    if loaded is None or not same(loaded, 0):
        found.wrong.append(f"{what}: not repaired")
    found.repaired += 1
    for fence in (folder / JOB / "fence").iterdir():
        if fence.name not in {str(generation) for generation, _ in STEPS}:
            fence.unlink()


def measured(folder: Path, times: int, seed: int) -> Found:
    """Damage a job this many times."""
    saved(folder)
    needed, chance, found = needed_by(folder), random.Random(seed), Found()
    for _ in range(times):
        try_once(folder, needed, chance, found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TIMES} times")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    times = QUICK_TIMES if options.quick else TIMES
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), times, options.seed)
    claims = [
        Claim("damages", sum(found.times.values()), "damages", times, least=True),
        Claim("damages that were not detected or not recovered from", len(found.wrong), "damages", 0),
        Claim("restored from an older checkpoint", found.older, "damages"),
        Claim("fences that had to be repaired, and were", found.repaired, "damages"),
        *(Claim(what, number, "damages") for what, number in sorted(found.times.items())),
    ]
    return show("Damaged checkpoints", claims, as_json=options.json, notes=found.wrong[:20])


if __name__ == "__main__":
    sys.exit(main())
