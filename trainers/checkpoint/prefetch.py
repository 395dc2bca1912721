"""Fetches chunks of a job's checkpoints to a machine, before the job's next run is ordered to restore there.

    python -m trainers.checkpoint.prefetch ROOT JOB GENERATION FOLDER [--trains] [--shared]

GENERATION is the generation of the next run. While the previous run still trains (`--trains`), only the chunks that the
two newest checkpoints have in common are fetched: frozen layers, and other data that does not change. The rest would be
out of date when the next run begins, and its transfer may cost money. Otherwise the whole newest checkpoint is fetched,
while the machine loads libraries and sets up the job. With `--shared`, several machines restore the job: tensors that
are sharded over ranks are left out, because each machine needs only a part of them.

Prints how many bytes are in FOLDER: at most as many as are still free on its disk.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainers.checkpoint import store
from trainers.checkpoint.fetched import FetchedChunks, NoRoom
from trainers.checkpoint.manifest import Manifest
from trainers.errors import DamagedCheckpoint, TrainerError
from trainers.objects.opening import Root, open_store

NICE = 5
"""Processes that prepare the run have priority."""
LISTINGS = 20
"""After this many attempts, missing chunks are not explained by newer checkpoints."""


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
    """A key that is equal for equal contents, also of different generations."""
    return chunk.rpartition("-")[2]


def fetch(root: Root, job: str, generation: int, to: FetchedChunks, *, trains: bool, shared: bool) -> None:
    """Fetch the chunks that a run of `generation` will need, as far as there is room.

    A run that still trains deletes checkpoints in the meantime: deleted ones are skipped, and checkpoints are listed
    again. Raises ObjectStoreError, OSError, and DamagedCheckpoint if something else is missing or damaged.
    """
    passed, damage = set[str](), DamagedCheckpoint("")
    for _ in range(LISTINGS if trains else 1):
        chunks, done = list[str](), 0
        try:
            needed = wanted(root, job, generation, trains=trains, shared=shared)
            chunks = [chunk for chunk in needed if chunk not in passed and not to.has(chunk)]
            for _ in store.read_chunks(root, job, dict.fromkeys(chunks, "that is being fetched"), to.put):
                done += 1
        except NoRoom:
            return
        except DamagedCheckpoint as error:
            damage = error
            passed.update(chunks[done : done + 1])
        else:
            return
    raise damage


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 if something could not be fetched; the run then restores it from the store."""
    parser = argparse.ArgumentParser(prog="python -m trainers.checkpoint.prefetch", description=__doc__)
    parser.add_argument("root")
    parser.add_argument("job")
    parser.add_argument("generation", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trains", action="store_true")
    parser.add_argument("--shared", action="store_true")
    its = parser.parse_args(arguments)
    to = FetchedChunks(its.folder)
    try:
        its.folder.mkdir(parents=True, exist_ok=True)
        root = open_store(its.root)
        fetch(root, its.job, its.generation, to, trains=its.trains, shared=its.shared)
    except (TrainerError, OSError) as error:
        sys.stderr.write(f"stopped fetching ahead of the restore: {error}\n")
        return 1
    finally:
        sys.stdout.write(f"{to.kept_bytes}\n")
    return 0


if __name__ == "__main__":
    os.nice(NICE)
    sys.exit(main())
