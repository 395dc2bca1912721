"""The checkpoints of a job in an object store: chunks, manifests and fences, and which checkpoints count.

    <root>/<job>/chunks/<generation>-<xxh3-128>     immutable pieces of at most 4 MiB (trainers.checkpoint.chunks)
    <root>/<job>/manifests/<generation>-<step>-<attempt>.json   created if absent, after every chunk of it
    <root>/<job>/fence/<generation>     created if absent, names the manifest that the generation starts from
                                        (trainers.checkpoint.fences, whose functions this module re-exports)

`root` is a folder, s3://bucket/prefix or an open store (trainers.objects). The orchestrator reads checkpoints and
writes fences through this module. Every function raises ObjectStoreError; functions that write raise CheckpointFull or
CheckpointReadOnly.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from trainers.checkpoint.chunks import CHUNKS, chunk_sizes, read_chunk, read_chunks, write_chunk
from trainers.checkpoint.fences import (
    FENCES,
    Fence,
    fence,
    fence_key,
    fence_of,
    fences,
    generations,
    repair_hint,
    require_ownership,
    void_fence,
    write_fence,
)
from trainers.checkpoint.manifest import CHUNK_BYTES, MOST_BYTES, Manifest, ManifestName, Piece
from trainers.checkpoint.place import job_store, named_errors, read
from trainers.errors import DamagedCheckpoint, StateError
from trainers.objects.opening import Root

__all__ = [
    "CHUNK_BYTES",
    "Fence",
    "chunk_sizes",
    "commit",
    "counting",
    "fence",
    "fences",
    "first_usable",
    "job_store",
    "manifest_key",
    "manifests",
    "newest_counting",
    "prepare",
    "read_chunk",
    "read_chunks",
    "read_manifest",
    "require_inside",
    "require_ownership",
    "settle_chunks",
    "verify",
    "verify_pieces",
    "void_fence",
    "write_chunk",
    "write_fence",
]

MANIFESTS = "manifests"
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


def manifest_key(name: ManifestName) -> str:
    """The key of a manifest among the objects of its job."""
    return f"{MANIFESTS}/{name}.json"


def prepare(root: Root, job: str) -> None:
    """Check that the job's objects can be written, before hours of training; creates its folders."""
    with named_errors():
        job_store(root, job).prepare(CHUNKS, FENCES, MANIFESTS)


# Manifests


def manifests(root: Root, job: str) -> list[ManifestName]:
    """Names of all committed checkpoints, damaged or not, counting or not, in ascending order."""
    found = []
    for key in job_store(root, job).keys(MANIFESTS):
        with suppress(ValueError):
            found.append(ManifestName.parse(key[len(MANIFESTS) + 1 :].removesuffix(".json")))
    return sorted(found)


def read_manifest(root: Root, job: str, name: ManifestName) -> Manifest:
    """Read and check a manifest. Raises DamagedCheckpoint, and CheckpointError for a newer format."""
    objects = job_store(root, job)
    where = objects.where(manifest_key(name))
    raw = read(objects, manifest_key(name), MOST_BYTES)
    if raw is None:
        raise DamagedCheckpoint(f"the manifest {where} is missing", hint="an older checkpoint is used if there is one")
    manifest = Manifest.from_bytes(raw, where)
    if (manifest.job, manifest.name) != (job, name):
        raise DamagedCheckpoint(
            f"the manifest {where} belongs to {manifest.name} of {manifest.job}",
            hint="an older checkpoint is used if there is one",
        )
    return manifest


def settle_chunks(root: Root, job: str) -> None:
    """Make the chunks that this process wrote survive a power loss, if another process commits the manifest."""
    with named_errors():
        job_store(root, job).settle(CHUNKS)


def commit(root: Root, manifest: Manifest) -> ManifestName:
    """Commit a checkpoint whose chunks are written. Returns its name: `attempt` increases until the name is free.

    Raises FencedError if the manifest's generation does not own the job, and StateError if the manifest is too large.
    """
    objects = job_store(root, manifest.job)
    require_ownership(root, manifest.job, manifest.name.generation)
    with named_errors():
        objects.settle(CHUNKS)
        while True:
            raw = manifest.to_bytes()
            if len(raw) > MOST_BYTES:
                raise StateError(
                    f"the numbers and text of the state take {len(raw)} bytes; the limit is {MOST_BYTES}",
                    hint="keep large data in tensors or arrays, not in lists",
                )
            if objects.put_if_absent(manifest_key(manifest.name), raw):
                break
            name = dataclasses.replace(manifest.name, attempt=manifest.name.attempt + 1)
            manifest = dataclasses.replace(manifest, name=name)
        objects.settle(MANIFESTS)
    return manifest.name


def counting(root: Root, job: str, generation: int) -> list[ManifestName]:
    """The checkpoints that a run of `generation` may start from, the best first; they are not read.

    First the checkpoints of the newest generation with a fence; then the one that this fence names and the earlier ones
    of the same run; and so on along the chain of fences. All others were written by a run that had lost the job (a
    zombie) and are ignored. Raises DamagedCheckpoint if a relevant fence is damaged.
    """
    # List these before the fences: a run that commits already has its fence.
    names = manifests(root, job)
    _require_fences(root, job, names)
    at, limit, chain = fence(root, job, upto=generation), None, list[ManifestName]()
    while at is not None and not at.void:
        of_run = [name for name in names if name.generation == at.generation and (limit is None or name <= limit)]
        chain += reversed(of_run)
        limit = ManifestName.parse(at.manifest) if at.manifest is not None else None
        at = fence_of(root, job, limit.generation) if limit is not None and limit.generation < at.generation else None
    return chain


def _require_fences(root: Root, job: str, names: list[ManifestName]) -> None:
    """Raises DamagedCheckpoint if the fence of the newest checkpoint is missing: it existed at the commit."""
    newest = max((name.generation for name in names), default=0)
    if newest > max(generations(root, job), default=0):
        objects = job_store(root, job)
        raise DamagedCheckpoint(f"the fence {objects.where(fence_key(newest))} is missing", hint=repair_hint(objects))


def first_usable(
    root: Root,
    job: str,
    generation: int,
    use: Callable[[ManifestName], _T],
    on_damage: Callable[[DamagedCheckpoint], object],
    start: ManifestName | None = None,
) -> _T | None:
    """The result of `use` for the best counting checkpoint (from `start` on) for which it does not raise
    DamagedCheckpoint. Each damaged checkpoint is passed to `on_damage`. None if none is left.

    A checkpoint that its owner deletes in the meantime, because it has a newer one, is not damaged: the folder is then
    listed again.
    """
    passed: set[ManifestName] = set()
    while True:
        names = counting(root, job, generation)
        if start is not None:
            names = [start, *(name for name in names if name < start)]
        for name in names:
            if name in passed:
                continue
            try:
                return use(name)
            except DamagedCheckpoint as damage:
                if name != start and name not in manifests(root, job):
                    break
                passed.add(name)
                on_damage(damage)
        else:
            return None


def newest_counting(
    root: Root,
    job: str,
    generation: int,
    on_damage: Callable[[DamagedCheckpoint], object] = _LOG.warning,
) -> str | None:
    """The name of the newest valid checkpoint that counts for `generation`; every byte of it is read.

    Damaged checkpoints are skipped and passed to `on_damage`. None: start from the beginning.
    """
    found = first_usable(root, job, generation, lambda name: verify(root, job, name), on_damage)
    return None if found is None else str(found.name)


def verify(root: Root, job: str, name: ManifestName) -> Manifest:
    """Check a complete checkpoint: the hashes of the manifest and of every chunk. Raises DamagedCheckpoint."""
    manifest = read_manifest(root, job, name)
    pieces = [(piece, f"{name}: {tensor.name}") for tensor in manifest.tensors for piece in tensor.pieces]
    verify_pieces(root, job, pieces)
    return manifest


def verify_pieces(root: Root, job: str, pieces: Sequence[tuple[Piece, str]]) -> None:
    """Check the chunks of these pieces, each with its holder. Raises DamagedCheckpoint."""
    holders = {piece.chunk: holder for piece, holder in reversed(pieces)}
    sizes = dict(read_chunks(root, job, holders, lambda _chunk, data: len(data)))
    for piece, holder in pieces:
        require_inside(piece, sizes[piece.chunk], holder)


def require_inside(piece: Piece, size_bytes: int, holder: str) -> None:
    """Raises DamagedCheckpoint unless a chunk of `size_bytes` contains the piece."""
    if piece.end > size_bytes:
        raise DamagedCheckpoint(
            f"checkpoint {holder}: the chunk {piece.chunk} has {size_bytes} bytes, not {piece.end}",
            hint="an older checkpoint is used if there is one",
        )
