"""Chunks: immutable pieces of at most 4 MiB, named by the generation that wrote them and the hash of their bytes.

    <root>/<job>/chunks/<generation>-<xxh3-128>

A run shares chunks only with itself. So whatever a paused writer of an older generation deletes when it wakes, it is
nothing that a newer one relies on; the price is that the first checkpoint after a handover is written whole.
"""

from __future__ import annotations

from pathlib import Path

from trainers.checkpoint.files import Bytes, create, listing, named_errors, read, replace, status
from trainers.checkpoint.manifest import CHUNK_BYTES
from trainers.errors import DamagedCheckpoint

_HINT = "an older checkpoint is used when there is one; copy the chunk back from a replica otherwise"


def chunk_folder(root: str | Path, job: str) -> Path:
    return Path(root) / job / "chunks"


def write_chunk(root: str | Path, job: str, data: Bytes, generation: int) -> str:
    """Store at most CHUNK_BYTES bytes for a checkpoint of `generation`; returns the chunk's name.

    Bytes that are there already are checked, not rewritten; a damaged chunk of that name is repaired. Raises
    CheckpointFull and CheckpointReadOnly.
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
    """The bytes of a chunk, verified. Raises DamagedCheckpoint naming `holder`, which needs it."""
    path = chunk_folder(root, job) / chunk
    data = read(path, CHUNK_BYTES)
    if data is None:
        raise DamagedCheckpoint(f"checkpoint {holder}: the chunk {path} is missing", hint=_HINT)
    if _digest(data) != chunk.rpartition("-")[2]:
        raise DamagedCheckpoint(f"checkpoint {holder}: the chunk {path} is cut or altered", hint=_HINT)
    return data


def chunk_bytes(root: str | Path, job: str, chunk: str) -> int | None:
    """The size of a chunk, which is not read; None when it is missing."""
    found = status(chunk_folder(root, job) / chunk)
    return None if found is None else found.st_size


def chunk_names(root: str | Path, job: str) -> list[str]:
    """All files among the chunks, temporary ones too, in no order."""
    return listing(chunk_folder(root, job))


def _digest(data: Bytes) -> str:
    import xxhash  # an extra: the base install lists manifests and writes fences without it

    return str(xxhash.xxh3_128_hexdigest(data))
