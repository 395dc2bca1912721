"""Retention: the run that owns a job deletes checkpoints that are no longer needed, and leftovers of dead writers.

It deletes only objects of its own and older generations, so it cannot harm a newer run, however long it was paused
between checking the fence and its last deletion. Within its own generation it is the only writer, and it is not writing
now. Older generations have lost the job; if one still writes, it finds its unfinished data missing and writes it again.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress

from trainers.checkpoint import store
from trainers.checkpoint.chunks import CHUNKS, chunk_names
from trainers.checkpoint.fences import FENCES
from trainers.checkpoint.manifest import NUMBER, ManifestName
from trainers.checkpoint.place import job_store, named_errors
from trainers.errors import DamagedCheckpoint
from trainers.objects.opening import Root

_LOG = logging.getLogger(__name__)
_UNFINISHED = re.compile(rf".*/(?:({NUMBER})(?:-.*)?|probe)")
_CHUNK = re.compile(rf"({NUMBER})-[0-9a-f]{{32}}")


def collect(root: Root, job: str, generation: int, keep: int) -> None:
    """Delete what no restore needs: everything except the newest `keep` counting checkpoints, the one that the newest
    fence names, and their chunks; also what writers that are gone left unfinished.

    Damaged checkpoints (an altered manifest, a missing chunk) do not count towards `keep`. If an older fence is
    damaged, so that it is unknown which checkpoints count, nothing is deleted. Raises FencedError if `generation` does
    not own the job, CheckpointReadOnly, and DamagedCheckpoint if the ownership is unknown.
    """
    objects = job_store(root, job)
    chunks = chunk_names(root, job)
    owner = store.require_ownership(root, job, generation)
    try:
        counting = store.counting(root, job, generation)
    except DamagedCheckpoint as damage:
        _LOG.warning("old checkpoints are kept: %s", damage)
        return
    kept = _kept(root, job, counting, keep, frozenset(chunks))
    named = ManifestName.parse(owner.manifest) if owner.manifest is not None else None
    if named is not None and named not in kept:
        kept[named] = frozenset()
        with suppress(DamagedCheckpoint):
            kept[named] = store.read_manifest(root, job, named).chunks()
    needed = frozenset[str]().union(*kept.values())
    with named_errors():
        names = store.manifests(root, job)
        old = [name for name in names if name.generation <= generation and name not in kept]
        objects.delete(*map(store.manifest_key, old))
        objects.delete(*(f"{CHUNKS}/{name}" for name in chunks if name not in needed and _is_chunk(name, generation)))
        for place in (CHUNKS, store.MANIFESTS, FENCES):
            objects.sweep(place, lambda key: _is_over(key, generation))


def _kept(
    root: Root, job: str, counting: list[ManifestName], keep: int, present: frozenset[str]
) -> dict[ManifestName, frozenset[str]]:
    """The newest `keep` counting checkpoints that have all their chunks, with these chunks."""
    kept: dict[ManifestName, frozenset[str]] = {}
    for name in counting:
        if len(kept) == max(keep, 1):
            break
        with suppress(DamagedCheckpoint):
            chunks = store.read_manifest(root, job, name).chunks()
            if chunks <= present:
                kept[name] = chunks
    return kept


def _is_chunk(name: str, generation: int) -> bool:
    """Whether it is a chunk of this generation or an older one."""
    chunk = _CHUNK.fullmatch(name)
    return chunk is not None and int(chunk[1]) <= generation


def _is_over(key: str, generation: int) -> bool:
    """Whether nobody needs unfinished data of this key any more."""
    unfinished = _UNFINISHED.fullmatch(key)
    return unfinished is not None and int(unfinished[1] or 0) <= generation
