"""Fetches chunks of a job's checkpoints to a machine, before the job's next run is ordered to restore there.

    python -m trainers.checkpoint.ahead ROOT JOB GENERATION FOLDER [--trains] [--shared]

GENERATION is that of the next run. While the run before it still trains (`--trains`), only what the two newest
checkpoints have in common is fetched: frozen layers, and whatever else does not change. The rest would be out of date
when the next run begins, and its transfer may cost money. Otherwise all of the newest checkpoint is fetched, while the
machine loads libraries and sets the job up. With `--shared`, several machines restore the job: tensors that are divided
among ranks are left out, because each machine needs only a part of them.

Prints how many bytes are in FOLDER; what does not fit into half of the free space is left out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainers.checkpoint import store
from trainers.checkpoint.fetched import FetchedChunks
from trainers.checkpoint.manifest import CHUNK_BYTES, Manifest
from trainers.errors import TrainerError
from trainers.objects.opening import Root, open_store

NICE = 5
"""What prepares the run goes first."""


def wanted(root: Root, job: str, generation: int, *, trains: bool, shared: bool) -> Sequence[str]:
    """The chunks that are worth fetching for a run of `generation`. Raises ObjectStoreError and DamagedCheckpoint."""
    names = store.counting(root, job, generation)[:2]
    if not names or (trains and len(names) < 2):
        return []
    newest, *before = (_needed(store.read_manifest(root, job, name), shared=shared) for name in names[: 1 + trains])
    if not before:
        return [*newest]
    contents = {_content(chunk) for chunk in before[0]}
    return [chunk for chunk in newest if _content(chunk) in contents]


def _needed(manifest: Manifest, *, shared: bool) -> dict[str, None]:
    """The chunks of a checkpoint, in the order in which they are read."""
    tensors = [tensor for tensor in manifest.tensors if not (shared and tensor.boxes)]
    return dict.fromkeys(piece.chunk for tensor in tensors for piece in tensor.pieces)


def _content(chunk: str) -> str:
    """What tells equal contents, whichever generation wrote them."""
    return chunk.rpartition("-")[2]


def fetch(root: Root, job: str, chunks: Sequence[str], to: FetchedChunks) -> int:
    """Fetch as many of these chunks as there is room for; returns their bytes. Raises ObjectStoreError,
    DamagedCheckpoint and OSError."""
    most = to.room_bytes() // CHUNK_BYTES
    holders = dict.fromkeys(chunks[:most], "that is being fetched")

    def keep(chunk: str, data: bytes) -> int:
        to.put(chunk, data)
        return len(data)

    return sum(size for _, size in store.read_chunks(root, job, holders, keep))


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 if something could not be fetched: then the run restores it from the store."""
    parser = argparse.ArgumentParser(prog="python -m trainers.checkpoint.ahead", description=__doc__)
    parser.add_argument("root")
    parser.add_argument("job")
    parser.add_argument("generation", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trains", action="store_true")
    parser.add_argument("--shared", action="store_true")
    its = parser.parse_args(arguments)
    try:
        its.folder.mkdir(parents=True, exist_ok=True)
        root = open_store(its.root)
        chunks = wanted(root, its.job, its.generation, trains=its.trains, shared=its.shared)
        sys.stdout.write(f"{fetch(root, its.job, chunks, FetchedChunks(its.folder))}\n")
    except (TrainerError, OSError) as error:
        sys.stderr.write(f"nothing more is fetched ahead of the restore: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    os.nice(NICE)
    sys.exit(main())
