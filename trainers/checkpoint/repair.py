"""Repairs the fences of a job's checkpoint folder. Errors about damaged fences name this command.

    python -m trainers.checkpoint.repair FOLDER_OR_URL [--starts-from MANIFEST]

A fence has its content twice: as text and as a hash of the text. If one of them is intact, the other can be restored.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import suppress

from trainers.checkpoint import fences, store
from trainers.checkpoint.fences import FENCES, Fence, fence_key, fence_names
from trainers.checkpoint.manifest import NUMBER
from trainers.checkpoint.place import job_store
from trainers.errors import DamagedCheckpoint, TrainerError, UnreadableObject
from trainers.objects.base import ObjectStore
from trainers.objects.opening import Root, open_store

_SCRATCH = "scratch"
_NAMES = re.compile(rf"{NUMBER}-{NUMBER}-{NUMBER}".encode())
_ALIKE = 56  # of the 64 characters of a hash: by chance 4 agree


def repair_fences(root: Root, job: str, starts_from: str | None = None) -> list[str]:
    """Restore every fence that was altered, renamed or deleted; returns one sentence for each repair.

    `starts_from` ("scratch" or a checkpoint's name) is needed if the newest fence cannot be reconstructed. Raises
    DamagedCheckpoint if it is needed and not given, or for a file that is not a fence.
    """
    done = _names_put_back(root, job)
    owners = {name.generation for name in store.manifests(root, job)}
    wanted = {*fences.generations(root, job), *([max(owners)] if owners else [])}
    for generation in sorted(wanted):
        with suppress(DamagedCheckpoint):
            if fences.fence_of(root, job, generation) is not None:
                continue
        found = _recovered(root, job, generation)
        if found is None and (generation in owners or generation < max(wanted)):
            # It has or had the job. Its start matters only for falling back to older checkpoints, which is given up.
            found = Fence(generation, None)
        if found is None:
            found = _as_requested(root, job, generation, starts_from)
        _put(root, job, found)
        state = "is void" if found.void else f"starts from {found.manifest or _SCRATCH}"
        done.append(f"restored the fence of generation {generation}, which {state}")
    return done


def main(arguments: list[str] | None = None) -> int:
    """The exit code is 0 if all fences are intact now, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m trainers.checkpoint.repair", description="Repair a job's fences.")
    parser.add_argument("folder", help="the job's checkpoint folder, or its URL: s3://bucket/prefix/job")
    parser.add_argument("--starts-from", metavar="MANIFEST", help=f'a name from manifests/, or "{_SCRATCH}"')
    options = parser.parse_args(arguments)
    try:
        root, _, job = open_store(options.folder).url.rpartition("/")
        if root.endswith(":/"):
            parser.error(f"{options.folder} names no job")
        done = repair_fences(root, job, options.starts_from)
    except TrainerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{sentence}\n" for sentence in done) or "nothing to repair\n")
    return 0


def _names_put_back(root: Root, job: str) -> list[str]:
    """Rename each intact fence that has a wrong name."""
    objects, done = job_store(root, job), []
    for name in sorted(fence_names(objects)):
        raw = _left(objects, name)
        intact = _whole(raw, job, objects)
        if intact is not None and name != str(intact.generation):
            present = objects.head(fence_key(intact.generation))
            if present is None or _left(objects, intact.generation) == raw:
                _put(root, job, intact)
                objects.delete(fence_key(name))
                done.append(f"renamed {name} to {intact.generation}")
                continue
        if not re.fullmatch(NUMBER, name):
            where = objects.where(fence_key(name))
            raise DamagedCheckpoint(f"{where} is not a fence of this job", hint="move it out of this folder")
    return done


def _left(objects: ObjectStore, name: int | str) -> bytes:
    """The first bytes of a fence; empty if there is none or it is not a regular file."""
    with suppress(UnreadableObject):
        return objects.get_range(fence_key(name), 0, fences.MOST_BYTES) or b""
    return b""


def _whole(raw: bytes, job: str, objects: ObjectStore) -> Fence | None:
    """The fence in `raw`, regardless of its name; None if it is not valid."""
    with suppress(DamagedCheckpoint, ValueError, KeyError, TypeError, RecursionError):
        return Fence.from_bytes(raw, job, json.loads(raw)["generation"], objects)
    return None


def _recovered(root: Root, job: str, generation: int) -> Fence | None:
    """The fence of this generation whose hash is in the damaged file, or else its text with most of its hash."""
    raw = _left(job_store(root, job), generation)
    named = {match.decode() for match in _NAMES.findall(raw)}
    named |= {str(name) for name in store.manifests(root, job) if name.generation < generation}
    possible = [Fence(generation, None), Fence(generation, None, void=True)]
    possible += [Fence(generation, name) for name in sorted(named)]
    by_words = []
    for candidate in possible:
        words, _, tail = candidate.to_bytes(job).partition(b',"hash":"')
        begin = raw.find(words + b",")
        digest = tail[:64]
        if digest in raw:
            return candidate
        found = raw[begin + len(words) + len(b',"hash":"') :][:64]
        if begin >= 0 and sum(a == b for a, b in zip(digest, found, strict=False)) >= _ALIKE:
            by_words.append(candidate)
    return by_words[0] if len(by_words) == 1 else None


def _as_requested(root: Root, job: str, generation: int, starts_from: str | None) -> Fence:
    names = [str(name) for name in store.manifests(root, job) if name.generation < generation]
    if starts_from in (*names, _SCRATCH):
        return Fence(generation, None if starts_from == _SCRATCH else starts_from)
    raise DamagedCheckpoint(
        f"the fence of generation {generation} cannot be reconstructed: its starting checkpoint is unknown",
        hint=f"add --starts-from and one of: {', '.join([*names[-5:], _SCRATCH])}",
    )


def _put(root: Root, job: str, fence: Fence) -> None:
    objects = job_store(root, job)
    objects.put(fence_key(fence.generation), fence.to_bytes(job))
    objects.settle(FENCES)


if __name__ == "__main__":
    sys.exit(main())
