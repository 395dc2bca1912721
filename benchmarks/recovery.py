"""The time in which a job restores its checkpoint, compared with reading and hashing the same bytes.

    python -m benchmarks.recovery [--quick] [--json]

The state is GPT-2 small with AdamW: 1.49 GB in chunks of at most 4 MiB.

1. In a folder on this machine: the time of a new process from the imported torch and built model to its first step. For
   comparison, all chunks are read into memory and their hashes (xxh3-128) checked, by one thread and by one per core;
   the fastest counts. This memory is new, like that of the restored optimizer: the kernel clears it while it is filled.
   Reading into the same 4 MiB again and again is reported without a target. The chunks are in the kernel's cache
   (warm), or have to be read from the disk (cold).
2. In a bucket of the tests' S3 server (tests/clouds/s3.py, moto), which is a separate process: restoring, which reads
   up to 16 chunks at the same time, is compared with reading and hashing one chunk after the other. The server waits
   for 30 ms before each answer, because a real bucket has latency (Amazon's is 100 to 200 ms:
   https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html). Without that wait, the server's
   CPU time is the limit; this is reported without a target.
3. From the bucket with latency, after a machine has fetched chunks ahead (trainers.checkpoint.prefetch): all chunks, as
   after a loss, while the machine loads libraries; and the chunks that two checkpoints have in common, as in a planned
   move of a job that trains only 2 of the 12 layers of its model. Restoring without them is in the same rounds.

Figures are medians. --quick: 2 rounds instead of 7, no cold ones, and the bucket holds only the parameters of 4 of
GPT-2's 12 layers (113 MB).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import benchmarks._one_thread  # noqa: F401  isort: skip
import torch
import torch._dynamo
import xxhash

from benchmarks._claims import Claim, show
from benchmarks.checkpoint_overhead import GPT2_SMALL
from tests.clouds.s3 import S3, environment
from tests.clouds.server import Request, Response, serving
from trainers import runner
from trainers.checkpoint import store
from trainers.checkpoint.fetched import FetchedChunks, restored_from
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.prefetch import fetch
from trainers.checkpoint.reader import load
from trainers.checkpoint.state import tensor_bytes
from trainers.checkpoint.writer import save
from trainers.control import EXIT_CODES
from trainers.loop import session  # noqa: F401  as a job's machine imports it before it knows the job
from trainers.objects.opening import open_store
from trainers.spec import TrainerSpec

JOB, SAVED = "job", ManifestName(1, 1, 1)
ROUNDS, QUICK_ROUNDS = 7, 2
OVER_READING, OVER_ONE_STREAM = 1.5, 2.0
LATENCY_S = 0.03
TRAINED = (2, 12)  # number of layers in the third part


def first_step_s(folder: Path, generation: int) -> float:
    """Run the job and return the seconds until its first step ends. The first generation starts from scratch and saves
    the checkpoint that the others restore."""
    root, run, new = str(folder / "checkpoints"), folder / f"run-{generation}", generation == 1
    start = None if new else str(SAVED)
    store.write_fence(root, JOB, generation, start)
    run.mkdir(parents=True)
    spec = TrainerSpec(
        job_id=JOB,
        run_id=run.name,
        generation=generation,
        attempt=1,
        checkpoint_root=root,
        control_dir=str(run / "control"),
        output_dir=str(folder / "outputs"),
        workdir=str(Path(__file__).parent),
        entry="_recovering:main",
        args={"leave": not new},
        steps=1 if new else 2,
        manifest=start,
    )
    pid = os.fork()
    if pid == 0:
        os._exit(EXIT_CODES.get(runner.run(spec), 1))
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit((run / "log").read_text())
    steps, took_s = (folder / "outputs" / "took").read_text().split()
    if int(steps) != SAVED.step - new:
        raise SystemExit(f"the job began at step {steps}")
    return float(took_s)


class Chunks:
    """The chunks of the checkpoint, as files."""

    def __init__(self, folder: Path) -> None:
        root = str(folder / "checkpoints")
        names = sorted(store.read_manifest(root, JOB, SAVED).chunks())
        self.files = [folder / "checkpoints" / JOB / "chunks" / name for name in names]
        self.sizes = [file.stat().st_size for file in self.files]

    def leave_memory(self) -> None:
        """Drop them from the kernel's cache."""
        for file in self.files:
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read_s(self, threads: int, *, into_new: bool) -> float:
        """Seconds for reading and hashing all chunks."""
        own = threading.local()
        begins = [sum(self.sizes[:number]) for number in range(len(self.sizes))]
        memory = tensor_bytes(torch.empty(sum(self.sizes), dtype=torch.uint8)) if into_new else memoryview(b"")

        def read(number: int) -> None:
            size = self.sizes[number]
            if into_new:
                buffer = memory[begins[number] : begins[number] + size]
            else:
                own.memory = getattr(own, "memory", None) or memoryview(bytearray(store.CHUNK_BYTES))
                buffer = own.memory[:size]
            with self.files[number].open("rb", buffering=0) as opened:
                opened.readinto(buffer)
            if xxhash.xxh3_128_hexdigest(buffer) != self.files[number].name.rpartition("-")[2]:
                raise SystemExit(f"{self.files[number]} is damaged")

        began_s = time.monotonic()
        if threads == 1:
            for number in range(len(self.files)):
                read(number)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(read, range(len(self.files))))
        return time.monotonic() - began_s


def from_folder(folder: Path, rounds: int, states: Sequence[str]) -> list[Claim]:
    """The first part."""
    first_step_s(folder, 1)
    os.sync()
    chunks, claims = Chunks(folder), []
    threads = sorted({1, os.cpu_count() or 1})
    ways: dict[str, Callable[[], float]] = {"again": partial(chunks.read_s, max(threads), into_new=False)}
    ways |= {f"new {number}": partial(chunks.read_s, number, into_new=True) for number in threads}
    generation = 1
    for state in states:
        took: dict[str, list[float]] = {name: [] for name in ("restore", *ways)}
        for _ in range(rounds):
            generation += 1
            restore: Callable[[], float] = partial(first_step_s, folder, generation)
            for name, way in {"restore": restore, **ways}.items():
                if state == "cold":
                    chunks.leave_memory()
                took[name].append(way())
        median = {name: statistics.median(seconds) for name, seconds in took.items()}
        floors = [min(each) for each in zip(*(took[name] for name in ways if name != "again"), strict=True)]
        over = statistics.median(one / floor for one, floor in zip(took["restore"], floors, strict=True))
        claims += [
            Claim(f"{state}: first step, over reading and hashing", over, "x", OVER_READING),
            Claim(f"{state}: to the first step", median["restore"], "s"),
            Claim(f"{state}: reading and hashing into new memory", statistics.median(floors), "s"),
            Claim(f"{state}: reading and hashing into the same 4 MiB again", median["again"], "s"),
        ]
    return claims


class Late:
    """The tests' cloud with delayed answers."""

    def __init__(self, cloud: S3, latency_s: float) -> None:
        self._cloud, self._latency_s = cloud, latency_s

    def __call__(self, request: Request) -> Response:
        time.sleep(self._latency_s)
        return self._cloud(request)


def serve(ends: Connection) -> None:
    """In a separate process: a bucket behind two servers, with and without latency."""
    s3 = S3()
    with serving(s3) as prompt, serving(Late(s3, LATENCY_S)) as late:
        ends.send((f"s3://{s3.bucket}/checkpoints", environment(prompt), environment(late)))
        with suppress(EOFError):
            ends.recv()


@contextmanager
def bucket() -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Its URL, and the variables of clients without and with latency."""
    context = multiprocessing.get_context("spawn")
    own, ends = context.Pipe()
    process = context.Process(target=serve, args=(ends,))
    process.start()
    ends.close()  # so that recv() ends if the process does
    try:
        yield own.recv()
    finally:
        own.close()
        process.join()


def from_bucket(shapes: list[tuple[int, ...]], rounds: int) -> list[Claim]:
    """The second part."""
    claims = []
    with bucket() as (url, prompt, late):
        os.environ.update(prompt)
        store.write_fence(url, JOB, 1, None)
        state = {str(number): torch.rand(shape) for number, shape in enumerate(shapes)}
        size_bytes = sum(tensor.nbytes for tensor in state.values())
        save(url, JOB, SAVED, items={"model": state}, position=None, keep=1)
        chunks = sorted(store.read_manifest(url, JOB, SAVED).chunks())
        for answers, variables in ((f"after {1000 * LATENCY_S:g} ms", late), ("at once", prompt)):
            os.environ.update(variables)
            root, took = open_store(url), {"several": list[float](), "one": list[float]()}
            for _ in range(rounds):
                began_s = time.monotonic()
                load(root, JOB, SAVED)
                took["several"].append(time.monotonic() - began_s)
                began_s = time.monotonic()
                for chunk in chunks:
                    store.read_chunk(root, JOB, chunk, "all")
                took["one"].append(time.monotonic() - began_s)
            several, one = (statistics.median(took[name]) for name in ("several", "one"))
            name = f"bucket that answers {answers}, {size_bytes / 1e9:.2f} GB"
            target = OVER_ONE_STREAM if variables is late else None
            claims += [
                Claim(f"{name}: several streams are faster than one by", one / several, "x", target, least=True),
                Claim(f"{name}: restoring", several, "s"),
            ]
        os.environ.update(late)
        claims += fetched_ahead(url, state, rounds)
    return claims


def fetched_ahead(url: str, state: dict[str, torch.Tensor], rounds: int) -> list[Claim]:
    """The third part."""
    root, trained = open_store(url), [*state][-len(state) * TRAINED[0] // TRAINED[1] :]
    after = {name: tensor + 1 if name in trained else tensor for name, tensor in state.items()}
    later = ManifestName(1, 2, 1)
    save(root, JOB, later, items={"model": after}, position=None, keep=2)
    took: dict[str, list[float]] = {"without": [], "with all": [], "with what is frozen": []}
    share = 0.0
    with tempfile.TemporaryDirectory() as folder:
        ways = {"without": "", "with all": f"{folder}/all", "with what is frozen": f"{folder}/frozen"}
        for way, trains in (("with all", False), ("with what is frozen", True)):
            Path(ways[way]).mkdir()
            to = FetchedChunks(Path(ways[way]))
            fetch(root, JOB, 2, to, trains=trains, shared=False)
            share = to.kept_bytes / sum(tensor.nbytes for tensor in state.values())
        for _ in range(rounds):
            for way, place in ways.items():
                began_s = time.monotonic()
                with restored_from(place):
                    load(root, JOB, later)
                took[way].append(time.monotonic() - began_s)
    without, all_s, frozen_s = (statistics.median(took[way]) for way in ways)
    name = f"bucket that answers after {1000 * LATENCY_S:g} ms, fetched ahead"
    return [
        Claim(f"{name}, all: restoring takes", all_s / without, "x"),
        Claim(f"{name}, the frozen {share:.0%}: restoring takes", frozen_s / without, "x"),
        Claim(f"{name}, nothing: restoring", without, "s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds, and 340 MB in the bucket")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary folder")
    options = parser.parse_args()
    load_average, rounds = os.getloadavg()[0], QUICK_ROUNDS if options.quick else ROUNDS
    shapes = GPT2_SMALL[2:50] if options.quick else GPT2_SMALL * 3
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        claims = from_folder(Path(folder), rounds, ("warm",) if options.quick else ("warm", "cold"))
    claims += from_bucket(shapes, 1 if options.quick else 3)
    notes = [
        f"{rounds} rounds, medians. Load of the machine at the start: {load_average:.1f} on {os.cpu_count()} cores."
    ]
    return show("Recovery", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
