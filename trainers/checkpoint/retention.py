"""Retention: the run that owns a job deletes the checkpoints that are no longer needed, and what dead writers left.

Only names of its own generation and of older ones: nothing of a newer run can be harmed, however long this one slept
between its look at the fence and its last deletion. Inside its own generation it is the only writer, and not writing
now. Older generations have lost the job; one that still writes finds its temporary file gone and writes it again.
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
    """Delete what no restore needs: all but the newest `keep` counting checkpoints and the one that the newest fence
    names, every chunk that none of these refers to, and temporary files of writers that are gone.

    Checkpoints that are plainly damaged (an altered manifest, a missing chunk) do not count as kept. When an older
    fence is damaged, so that nobody can tell what counts, nothing is deleted. Raises FencedError when `generation` does
    not own the job, CheckpointReadOnly, and DamagedCheckpoint when that cannot be told either.
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
    """The newest `keep` that count and have all their chunks, with the chunks that each needs."""
    kept: dict[ManifestName, frozenset[str]] = {}
    for name in counting:
        if len(kept) == max(keep, 1):
            break
        with suppress(DamagedCheckpoint):
            chunks = store.read_manifest(root, job, name).chunks()
            if chunks <= present:
                kept[name] = chunks
    return kept
