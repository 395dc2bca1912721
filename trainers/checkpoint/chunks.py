"""Chunks: immutable pieces of at most 4 MiB, named by the generation that wrote them and the hash of their bytes.

    <root>/<job>/chunks/<generation>-<xxh3-128>

Runs do not share chunks. Whatever a paused writer of an older generation deletes when it resumes, no newer generation
needs it; the price is that the first checkpoint after a handover is written in full.
"""

from __future__ import annotations

from pathlib import Path

from trainers.checkpoint.files import Bytes, create, listing, named_errors, read, replace, status
from trainers.checkpoint.manifest import CHUNK_BYTES
from trainers.errors import DamagedCheckpoint

_HINT = "an older checkpoint is used if there is one; otherwise restore the chunk from a replica"


def chunk_folder(root: str | Path, job: str) -> Path:
    """The folder of a job's chunks."""
    return Path(root) / job / "chunks"


def write_chunk(root: str | Path, job: str, data: Bytes, generation: int) -> str:
    """Store at most CHUNK_BYTES bytes for a checkpoint of `generation`; returns the chunk's name.

    Existing bytes are verified and not rewritten; a damaged chunk of that name is repaired. Raises CheckpointFull and
    CheckpointReadOnly.
    """
    name = f"{generation}-{_digest(data)}"
    path = chunk_folder(root, job) / name
    with named_errors(path):
        try:
            found = read(path, CHUNK_BYTES)
        except DamagedCheckpoint:
            found = b""
        if found is None and create(path, data):
            return name
        if found != data:
            replace(path, data)
    return name


def read_chunk(root: str | Path, job: str, chunk: str, holder: str) -> bytes:
    """The verified bytes of a chunk. Raises DamagedCheckpoint that names `holder`, which needs it."""
    path = chunk_folder(root, job) / chunk
    data = read(path, CHUNK_BYTES)
    if data is None:
        raise DamagedCheckpoint(f"checkpoint {holder}: the chunk {path} is missing", hint=_HINT)
    if _digest(data) != chunk.rpartition("-")[2]:
        raise DamagedCheckpoint(f"checkpoint {holder}: the chunk {path} is truncated or altered", hint=_HINT)
    return data


def chunk_bytes(root: str | Path, job: str, chunk: str) -> int | None:
    """The size of a chunk in bytes, without reading it; None if it is missing."""
    found = status(chunk_folder(root, job) / chunk)
    return None if found is None else found.st_size


def chunk_names(root: str | Path, job: str) -> list[str]:
    """All files in the chunk folder, including temporary ones, in no particular order."""
    return listing(chunk_folder(root, job))


def _digest(data: Bytes) -> str:
    import xxhash  # an optional dependency: the base install lists manifests and writes fences without it

    return str(xxhash.xxh3_128_hexdigest(data))
