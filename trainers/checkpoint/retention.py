"""Retention: the run that owns a job deletes checkpoints that are no longer needed, and leftovers of dead writers.

It deletes only objects of its own and older generations, so it cannot harm a newer run, even after a long pause between
checking the fence and its last deletion. Within its own generation it is the only writer, and it is not writing now.
Older generations have lost the job; if one still writes, it finds its unfinished data missing and writes it again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from trainers.checkpoint import store
from trainers.checkpoint.chunks import CHUNKS, chunk_names
from trainers.checkpoint.fences import FENCES
from trainers.checkpoint.manifest import NUMBER, Manifest, ManifestName
from trainers.checkpoint.place import job_store, named_errors
from trainers.errors import DamagedCheckpoint
from trainers.objects.opening import Root

_LOG = logging.getLogger(__name__)
_UNFINISHED = re.compile(rf".*/(?:({NUMBER})(?:-.*)?|probe)")
_CHUNK = re.compile(rf"({NUMBER})-[0-9a-f]{{32}}")


class Keep(NamedTuple):
    """Which checkpoints are kept: the `last` ones; the newest of each of the `hourly` latest hours that have one; and
    the `best` ones with the lowest loss. A checkpoint that is kept for several reasons counts for each.
    """

    last: int
    hourly: int = 0
    best: int = 0


def collect(root: Root, job: str, generation: int, keep: Keep | int) -> None:
    """Delete data that no restore needs: everything except the counting checkpoints to keep (a number: this many of the
    latest), the checkpoint that the newest fence names, and their chunks; also unfinished data of dead writers.

    Damaged checkpoints (an altered manifest, a missing chunk) do not count towards `keep`. If an older fence is
    damaged, it is unknown which checkpoints count, and nothing is deleted. Raises FencedError if `generation` does
    not own the job, CheckpointReadOnly, and DamagedCheckpoint if the ownership is unknown.
    """
    objects = job_store(root, job)
    try:
        old, unused = _surplus(root, job, generation, Keep(keep) if isinstance(keep, int) else keep)
    except DamagedCheckpoint as damage:
        store.require_ownership(root, job, generation)
        _LOG.warning("old checkpoints are kept: %s", damage)
        return
    with named_errors():
        objects.delete(*map(store.manifest_key, old))
        objects.delete(*(f"{CHUNKS}/{name}" for name in unused))
        for place in (CHUNKS, store.MANIFESTS, FENCES):
            objects.sweep(place, lambda key: _is_over(key, generation))


def surplus(root: Root, job: str, generation: int, keep: Keep) -> tuple[list[ManifestName], int]:
    """What `collect` would delete: the checkpoints, in ascending order, and the bytes of unneeded chunks. Raises the
    errors of `collect`, and DamagedCheckpoint if it would delete nothing because of a damaged fence.
    """
    old, unused = _surplus(root, job, generation, keep)
    return old, sum(store.chunk_sizes(root, job, unused).values())


def _surplus(root: Root, job: str, generation: int, keep: Keep) -> tuple[list[ManifestName], list[str]]:
    """The checkpoints and chunks that no restore needs."""
    chunks = chunk_names(root, job)
    owner = store.require_ownership(root, job, generation)
    kept = _kept(root, job, store.counting(root, job, generation), keep, frozenset(chunks))
    named = ManifestName.parse(owner.manifest) if owner.manifest is not None else None
    if named is not None and named not in kept:
        kept[named] = frozenset()
        with suppress(DamagedCheckpoint):
            kept[named] = store.read_manifest(root, job, named).chunks()
    needed = frozenset[str]().union(*kept.values())
    old = [name for name in store.manifests(root, job) if name.generation <= generation and name not in kept]
    return old, [name for name in chunks if name not in needed and _is_chunk(name, generation)]


def _kept(
    root: Root, job: str, counting: list[ManifestName], keep: Keep, present: frozenset[str]
) -> dict[ManifestName, frozenset[str]]:
    """The counting checkpoints to keep, with their chunks; only checkpoints whose chunks all exist."""
    intact: list[Manifest] = []
    for name in counting:
        if len(intact) == max(keep.last, 1) and not (keep.hourly or keep.best):
            break
        with suppress(DamagedCheckpoint):
            manifest = store.read_manifest(root, job, name)
            if manifest.chunks() <= present:
                intact.append(manifest)
    return {manifest.name: manifest.chunks() for manifest in selected(intact, keep)}


def selected(manifests: Sequence[Manifest], keep: Keep) -> list[Manifest]:
    """The manifests to keep, from `manifests` in the order from the newest to the oldest."""
    of_hour: dict[int, Manifest] = {}
    for manifest in manifests:
        if "saved_at" in manifest.about:
            of_hour.setdefault(int(manifest.about["saved_at"] // 3600), manifest)
    hourly = [of_hour[hour] for hour in sorted(of_hour, reverse=True)[: keep.hourly]]
    with_loss = [manifest for manifest in manifests if "loss" in manifest.about]
    best = sorted(with_loss, key=lambda manifest: manifest.about["loss"])[: keep.best]
    names = {manifest.name for manifest in (*manifests[: max(keep.last, 1)], *hourly, *best)}
    return [manifest for manifest in manifests if manifest.name in names]


def _is_chunk(name: str, generation: int) -> bool:
    """Whether this is a chunk of this generation or an older one."""
    chunk = _CHUNK.fullmatch(name)
    return chunk is not None and int(chunk[1]) <= generation


def _is_over(key: str, generation: int) -> bool:
    """Whether unfinished data of this key is no longer needed."""
    unfinished = _UNFINISHED.fullmatch(key)
    return unfinished is not None and int(unfinished[1] or 0) <= generation
