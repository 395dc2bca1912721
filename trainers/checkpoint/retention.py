"""Retention: the run that owns a job deletes checkpoints that are no longer needed, and leftovers of dead writers.

It deletes only files of its own and older generations, so it cannot harm a newer run, however long it was paused
between checking the fence and its last deletion. Within its own generation it is the only writer, and it is not writing
now. Older generations have lost the job; if one still writes, it finds its temporary file missing and writes it again.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path

from trainers.checkpoint import store
from trainers.checkpoint.chunks import chunk_names
from trainers.checkpoint.files import delete, listing, named_errors
from trainers.checkpoint.manifest import NUMBER, ManifestName
from trainers.errors import DamagedCheckpoint

_LOG = logging.getLogger(__name__)
_TEMPORARY = re.compile(rf"\.(?:({NUMBER})(?:-.*)?|probe)\.[0-9a-f]{{12}}")
_CHUNK = re.compile(rf"({NUMBER})-[0-9a-f]{{32}}")


def collect(root: str | Path, job: str, generation: int, keep: int) -> None:
    """Delete what no restore needs: everything except the newest `keep` counting checkpoints, the one that the newest
    fence names, and their chunks; also temporary files of writers that are gone.

    Damaged checkpoints (an altered manifest, a missing chunk) do not count towards `keep`. If an older fence is
    damaged, so that it is unknown which checkpoints count, nothing is deleted. Raises FencedError if `generation` does
    not own the job, CheckpointReadOnly, and DamagedCheckpoint if the ownership is unknown.
    """
    folder = store.job_folder(root, job)
    files = chunk_names(root, job)
    owner = store.require_ownership(root, job, generation)
    try:
        counting = store.counting(root, job, generation)
    except DamagedCheckpoint as damage:
        _LOG.warning("old checkpoints are kept: %s", damage)
        return
    kept = _kept(root, job, counting, keep, frozenset(files))
    named = ManifestName.parse(owner.manifest) if owner.manifest is not None else None
    if named is not None and named not in kept:
        kept[named] = frozenset()
        with suppress(DamagedCheckpoint):
            kept[named] = store.read_manifest(root, job, named).chunks()
    needed = frozenset[str]().union(*kept.values())
    with named_errors(folder):
        for name in store.manifests(root, job):
            if name.generation <= generation and name not in kept:
                delete(folder / "manifests" / f"{name}.json")
        for file in files:
            chunk = _CHUNK.fullmatch(file)
            if chunk is not None and int(chunk[1]) <= generation and file not in needed:
                delete(folder / "chunks" / file)
        for place in ("chunks", "manifests", "fence"):
            for file in files if place == "chunks" else listing(folder / place):
                temporary = _TEMPORARY.fullmatch(file)
                if temporary is not None and int(temporary[1] or 0) <= generation:
                    delete(folder / place / file)


def _kept(
    root: str | Path, job: str, counting: list[ManifestName], keep: int, present: frozenset[str]
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
