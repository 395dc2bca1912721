"""Chunks: immutable pieces of at most 4 MiB, named by the generation that wrote them and the hash of their bytes.

    <root>/<job>/chunks/<generation>-<xxh3-128>

Runs do not share chunks. So a paused writer of an older generation cannot delete anything that a newer generation needs
when it resumes; in return, the first checkpoint after a handover is written in full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

from trainers.checkpoint.fetched import present
from trainers.checkpoint.manifest import CHUNK_BYTES
from trainers.checkpoint.place import job_store, named_errors, read
from trainers.errors import DamagedCheckpoint
from trainers.objects.base import Bytes
from trainers.objects.opening import Root

_T = TypeVar("_T")

CHUNKS = "chunks"
READS_AT_ONCE, REMOTE_READS_AT_ONCE = 4, 16
_HINT = "an older checkpoint is used if there is one; otherwise restore the chunk from a replica"


def write_chunk(root: Root, job: str, data: Bytes, generation: int) -> str:
    """Store at most CHUNK_BYTES bytes for a checkpoint of `generation`; returns the chunk's name.

    Existing bytes are verified and not rewritten; a damaged chunk of that name is repaired. Raises CheckpointFull and
    CheckpointReadOnly.
    """
    name = f"{generation}-{_digest(data)}"
    objects, key = job_store(root, job), f"{CHUNKS}/{name}"
    with named_errors():
        try:
            found = read(objects, key, CHUNK_BYTES)
        except DamagedCheckpoint:
            found = b""
        if found is None and objects.put_if_absent(key, data):
            return name
        if found != data:
            objects.put(key, data)
    return name


def read_chunk(root: Root, job: str, chunk: str, holder: str) -> bytes:
    """The verified bytes of a chunk. Raises DamagedCheckpoint that names `holder`, which needs it."""
    fetched = present.get()
    if fetched is not None and (here := fetched.get(chunk)) is not None and _is_right(chunk, here):
        fetched.used(len(here))
        return here
    objects, key = job_store(root, job), f"{CHUNKS}/{chunk}"
    data = read(objects, key, CHUNK_BYTES)
    if data is None:
        raise DamagedCheckpoint(f"checkpoint {holder}: the chunk {objects.where(key)} is missing", hint=_HINT)
    if not _is_right(chunk, data):
        raise DamagedCheckpoint(
            f"checkpoint {holder}: the chunk {objects.where(key)} is truncated or altered", hint=_HINT
        )
    return data


def read_chunks(
    root: Root, job: str, holders: Mapping[str, str], use: Callable[[str, bytes], _T]
) -> Iterator[tuple[str, _T]]:
    """Verify each of these chunks, and pass its name and bytes to `use`; yields the names and the results, in order.

    Several are read and used at the same time, in threads: one stream uses neither a disk nor a bucket fully, and one
    thread gets new memory more slowly than several. `holders`: who needs the chunks, by name. Raises DamagedCheckpoint,
    and the errors of `use`.
    """

    def used(name: str, holder: str) -> _T:
        return use(name, read_chunk(root, job, name, holder))

    at_once = min(REMOTE_READS_AT_ONCE if job_store(root, job).remote else READS_AT_ONCE, len(holders))
    if at_once < 2:
        yield from ((name, used(name, holder)) for name, holder in holders.items())
        return
    left, pending = iter(holders.items()), deque[tuple[str, Future[_T]]]()
    with ThreadPoolExecutor(at_once, "chunks") as threads:

        def begin(count: int) -> None:
            for name, holder in islice(left, count):
                pending.append((name, threads.submit(copy_context().run, used, name, holder)))

        begin(at_once + 2)
        try:
            while pending:
                name, future = pending.popleft()
                yield name, future.result()
                begin(1)
        finally:
            for _, future in pending:
                future.cancel()


def chunk_names(root: Root, job: str) -> list[str]:
    """The names of all chunks, in no particular order."""
    return [key[len(CHUNKS) + 1 :] for key in job_store(root, job).keys(CHUNKS)]


def chunk_sizes(root: Root, job: str, names: Iterable[str]) -> dict[str, int]:
    """The size in bytes of each of these chunks that exists. Their content is not read."""
    objects, keys = job_store(root, job), {f"{CHUNKS}/{name}" for name in names}
    if not objects.remote:
        found = [listed for key in keys if (listed := objects.head(key)) is not None]
    else:  # one request for a thousand of them
        found = [listed for listed in objects.list(CHUNKS) if listed.key in keys] if keys else []
    return {listed.key[len(CHUNKS) + 1 :]: listed.size_bytes for listed in found}


def _is_right(chunk: str, data: Bytes) -> bool:
    return _digest(data) == chunk.rpartition("-")[2]


def _digest(data: Bytes) -> str:
    import xxhash  # an optional dependency: the base install lists manifests and writes fences without it

    return str(xxhash.xxh3_128_hexdigest(data))
