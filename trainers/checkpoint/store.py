"""The checkpoint folder of a job: chunks, manifests and fences; which checkpoints count, and which may go.

    <root>/<job>/chunks/<xxh3-128>      immutable pieces of at most 4 MiB
    <root>/<job>/manifests/<generation>-<step>-<attempt>.json   created if absent, after every chunk of it
    <root>/<job>/fence/<generation>     created if absent, names the manifest that the generation starts from
                                        (trainers.checkpoint.fences, whose functions are offered here as well)

Must not know: torch, numpy, what a tensor means. The orchestrator reads and fences through this module.
Every function that writes raises CheckpointFull or CheckpointReadOnly.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainers.checkpoint.fences import (
    Fence,
    fence,
    fence_of,
    fences,
    generations,
    repair_hint,
    require_ownership,
    void_fence,
    write_fence,
)
from trainers.checkpoint.files import Bytes, create, make_folder, named_errors, replace, sync_folder
from trainers.checkpoint.manifest import Manifest, ManifestName
from trainers.errors import DamagedCheckpoint

__all__ = [
    "CHUNK_BYTES",
    "Fence",
    "collect",
    "commit",
    "counting",
    "fence",
    "fences",
    "job_folder",
    "manifests",
    "newest_counting",
    "prepare",
    "read_chunk",
    "read_manifest",
    "require_ownership",
    "verify",
    "void_fence",
    "write_chunk",
    "write_fence",
]

CHUNK_BYTES = 4 * 2**20

_LOG = logging.getLogger(__name__)


def job_folder(root: str | Path, job: str) -> Path:
    return Path(root) / job


def prepare(root: str | Path, job: str) -> None:
    """Create the job's folders and prove that they can be written, before hours are spent on training."""
    folder = job_folder(root, job)
    with named_errors(folder):
        for part in ("chunks", "manifests", "fence"):
            make_folder(folder / part)
        sync_folder(folder)
        sync_folder(folder.parent)
        # Not among the chunks, where the run that owns the job now may be collecting.
        probe = folder / "manifests" / f".probe.{os.getpid()}"
        replace(probe, b"probe")
        probe.unlink()


# Manifests


def manifests(root: str | Path, job: str) -> list[ManifestName]:
    """Names of all committed checkpoints, damaged or not, counting or not, in ascending order."""
    found = []
    with suppress(FileNotFoundError):
        for file in os.listdir(job_folder(root, job) / "manifests"):
            with suppress(ValueError):
                found.append(ManifestName.parse(file.removesuffix(".json")))
    return sorted(found)


def read_manifest(root: str | Path, job: str, name: ManifestName) -> Manifest:
    """Read a manifest and check its own hash. Raises DamagedCheckpoint."""
    path = job_folder(root, job) / "manifests" / f"{name}.json"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DamagedCheckpoint(f"the manifest {path} is missing", hint="an older checkpoint is used instead") from None
    return Manifest.from_bytes(raw, str(path))


def commit(root: str | Path, manifest: Manifest) -> ManifestName:
    """Make a checkpoint exist; its chunks must be there. Returns its name: `attempt` rises until it is free.

    Raises FencedError when the manifest's generation does not own the job.
    """
    folder = job_folder(root, manifest.job) / "manifests"
    require_ownership(root, manifest.job, manifest.name.generation)
    with named_errors(folder):
        sync_folder(folder.parent / "chunks")
        while not create(folder / f"{manifest.name}.json", manifest.to_bytes()):
            name = dataclasses.replace(manifest.name, attempt=manifest.name.attempt + 1)
            manifest = dataclasses.replace(manifest, name=name)
        sync_folder(folder)
    return manifest.name


def counting(root: str | Path, job: str, generation: int) -> list[ManifestName]:
    """The checkpoints that a run of `generation` may start from, the best first; none of them has been read.

    They are those of the newest generation that a fence has admitted; then the one that its fence names and
    those which that run wrote before it; and so on down the chain of fences. All else was written by a run
    that had lost the job (a zombie) and is ignored. Raises DamagedCheckpoint when a fence that decides is damaged.
    """
    # Listed before the fences: whoever commits has its fence by then.
    names = manifests(root, job)
    _require_fences(root, job, names)
    at, limit, chain = fence(root, job, upto=generation), None, list[ManifestName]()
    while at is not None and not at.void:
        of_run = [name for name in names if name.generation == at.generation and (limit is None or name <= limit)]
        chain += reversed(of_run)
        limit = ManifestName.parse(at.manifest) if at.manifest is not None else None
        at = fence_of(root, job, limit.generation) if limit is not None and limit.generation < at.generation else None
    return chain


def _require_fences(root: str | Path, job: str, names: list[ManifestName]) -> None:
    """Raises DamagedCheckpoint when the fence of the newest checkpoint's generation is gone: it had one to commit."""
    newest = max((name.generation for name in names), default=0)
    if newest > max(generations(root, job), default=0):
        folder = job_folder(root, job)
        raise DamagedCheckpoint(f"the fence {folder / 'fence' / str(newest)} is missing", hint=repair_hint(folder))


def newest_counting(
    root: str | Path,
    job: str,
    generation: int,
    on_damage: Callable[[DamagedCheckpoint], None] = _LOG.warning,
) -> str | None:
    """Name of the newest checkpoint that counts for `generation` and verifies, every byte of it read.

    Damaged ones are passed over, each told to `on_damage`. None: start from scratch.
    """
    for name in counting(root, job, generation):
        try:
            verify(root, job, name)
        except DamagedCheckpoint as damage:
            on_damage(damage)
        else:
            return str(name)
    return None


def verify(root: str | Path, job: str, name: ManifestName) -> Manifest:
    """Check a checkpoint whole: the manifest's hash and every chunk's. Raises DamagedCheckpoint."""
    manifest = read_manifest(root, job, name)
    checked: set[str] = set()
    for tensor in manifest.tensors:
        for piece in tensor.pieces:
            if piece.chunk not in checked:
                read_chunk(root, job, piece.chunk, holder=f"{name}: {tensor.name}")
                checked.add(piece.chunk)
    return manifest


# Chunks


def write_chunk(root: str | Path, job: str, data: Bytes) -> str:
    """Store at most CHUNK_BYTES bytes; returns the chunk's name.

    Bytes that are there already are checked, not rewritten; a damaged chunk of that name is repaired.
    """
    name = _digest(data)
    path = job_folder(root, job) / "chunks" / name
    with named_errors(path):
        if not path.exists():
            create(path, data)
        elif path.read_bytes() != data:
            replace(path, data)
        else:
            # Touched, so that a collector which listed it as unreferenced leaves it alone.
            os.utime(path)
    return name


def read_chunk(root: str | Path, job: str, chunk: str, holder: str) -> bytes:
    """The bytes of a chunk, verified. Raises DamagedCheckpoint naming `holder`, which needs it."""
    path = job_folder(root, job) / "chunks" / chunk
    hint = "an older checkpoint is used when there is one; copy the chunk back from a replica otherwise"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DamagedCheckpoint(f"checkpoint {holder}: the chunk {path} is missing", hint=hint) from None
    if _digest(data) != chunk:
        raise DamagedCheckpoint(f"checkpoint {holder}: the chunk {path} is cut or altered", hint=hint)
    return data


def _digest(data: Bytes) -> str:
    import xxhash  # an extra: the base install lists manifests and writes fences without it

    return str(xxhash.xxh3_128_hexdigest(data))


# Retention


def collect(root: str | Path, job: str, generation: int, keep: int) -> None:
    """Delete what no restore needs: all but the newest `keep` counting checkpoints and the one that the
    newest fence names, then every chunk that no remaining checkpoint refers to.

    Raises FencedError when `generation` does not own the job.
    """
    folder = job_folder(root, job)
    # Listed before the fence is checked: what a newer owner creates after its fence is not in these.
    names = manifests(root, job)
    files = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(folder / "chunks")}
    require_ownership(root, job, generation)
    chunks: dict[str, frozenset[str]] = {}
    for name in names:
        with suppress(DamagedCheckpoint):
            chunks[str(name)] = read_manifest(root, job, name).chunks()
    readable = [str(name) for name in counting(root, job, generation) if str(name) in chunks]
    newest = fence(root, job)
    kept = {*readable[: max(keep, 1)], newest.manifest if newest is not None else None}
    needed = frozenset[str]().union(*(chunks[name] for name in chunks if name in kept))
    with named_errors(folder):
        for name in names:
            if str(name) not in kept:
                (folder / "manifests" / f"{name}.json").unlink(missing_ok=True)
        for file in files.keys() - needed:
            with suppress(FileNotFoundError):
                if (folder / "chunks" / file).stat().st_mtime_ns == files[file]:
                    (folder / "chunks" / file).unlink()
