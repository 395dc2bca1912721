"""Fences: which generation of a job owns its checkpoint folder, and from which checkpoint each generation starts.

    <root>/<job>/fence/<generation>     {"generation": 2, "manifest": "1-57-1", "hash": sha256}

A fence is created only if absent and never changed. Its hash covers job, generation and manifest, and its bytes must be
exactly those of `Fence.to_bytes`: a different byte, another name, or a file from another job counts as damage. A void
fence ("void": true) gives the job to no generation. It replaces an abandoned handover, so that a late attempt to
complete the handover fails: of `write_fence` and `void_fence` for one generation, exactly one succeeds.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.place import job_store, named_errors, read
from trainers.errors import CheckpointError, DamagedCheckpoint, FencedError
from trainers.objects.base import ObjectStore
from trainers.objects.opening import Root

_GENERATION = re.compile("[1-9][0-9]{0,17}")
MOST_BYTES = 4096
FENCES = "fence"


@dataclass(frozen=True, slots=True)
class Fence:
    """Generation `generation` owns the job from now on and starts from `manifest` (None: from the beginning).

    `void`: it does not own the job and never will.
    """

    generation: int
    manifest: str | None
    void: bool = False

    def to_bytes(self, job: str) -> bytes:
        """The content of the fence file of this job."""
        body: dict[str, object] = {"generation": self.generation, "manifest": self.manifest}
        if self.void:
            body["void"] = True
        covered = json.dumps({"job": job, **body}, separators=(",", ":"))
        body["hash"] = hashlib.sha256(covered.encode()).hexdigest()
        return json.dumps(body, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes, job: str, generation: int, objects: ObjectStore) -> Fence:
        """Parse a fence of a job's `objects`. Raises DamagedCheckpoint unless `raw` is exactly the fence of this job
        and generation.
        """
        try:
            body = json.loads(raw)
            found = cls(generation, body["manifest"], "void" in body)
            if found.manifest is not None:
                ManifestName.parse(found.manifest)
            if found.to_bytes(job) == raw:
                return found
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise DamagedCheckpoint(
            f"the fence {objects.where(fence_key(generation))} is altered, or does not belong to generation "
            f"{generation} of {job}",
            hint=repair_hint(objects),
        )


def fence_key(generation: int | str) -> str:
    """The key of a generation's fence among the objects of its job."""
    return f"{FENCES}/{generation}"


def repair_hint(objects: ObjectStore) -> str:
    """The hint with the command that repairs the fences among a job's objects."""
    return f"repair it: python -m trainers.checkpoint.repair {shlex.quote(objects.url)}"


def fence_names(objects: ObjectStore) -> list[str]:
    """The names of all objects in the place of a job's fences."""
    return [key[len(FENCES) + 1 :] for key in objects.keys(FENCES)]


def fences(root: Root, job: str) -> list[Fence]:
    """All fences except void ones, the newest first. Raises DamagedCheckpoint if one is not valid."""
    return list(_in_force(root, job))


def fence(root: Root, job: str, upto: int | None = None) -> Fence | None:
    """The newest fence that is not void (at most of generation `upto`): its generation owns the job. None if there is
    none.

    Raises DamagedCheckpoint for that fence and newer ones; older ones are not read.
    """
    return next(_in_force(root, job, upto), None)


def fence_of(root: Root, job: str, generation: int) -> Fence | None:
    """The fence of one generation, void or not; None if there is none. Raises DamagedCheckpoint."""
    objects = job_store(root, job)
    raw = read(objects, fence_key(generation), MOST_BYTES, hint=repair_hint(objects))
    return None if raw is None else Fence.from_bytes(raw, job, generation, objects)


def write_fence(root: Root, job: str, generation: int, manifest: str | None) -> None:
    """CUTOVER: hand the job to `generation`. Repeating it with the same manifest changes nothing.

    Raises FencedError if this generation already starts from another manifest or is void, or if a newer one owns the
    job, and CheckpointError for an invalid `generation` or `manifest`.
    """
    wanted = Fence(_checked(generation), _checked_manifest(manifest))
    newest = fence(root, job)
    if newest is not None and newest.generation > generation and fence_of(root, job, generation) is None:
        raise FencedError(f"generation {newest.generation} already owns {job}: {generation} is too old")
    found = _established(root, job, wanted)
    if found.void:
        raise FencedError(f"the handover of {job} to generation {generation} was abandoned: its fence is void")
    if found != wanted:
        raise FencedError(f"generation {generation} of {job} starts from {found.manifest}, not {manifest}")


def void_fence(root: Root, job: str, generation: int) -> bool:
    """Make sure that `generation` never gets the job; the current owner continues. Repeating it changes nothing.

    True: the fence of `generation` is now void. False: the handover came first, and `generation` has (or had) the job.
    Raises CheckpointError for an invalid `generation`, and DamagedCheckpoint.
    """
    return _established(root, job, Fence(_checked(generation), None, void=True)).void


def require_ownership(root: Root, job: str, generation: int) -> Fence:
    """The newest fence that is not void. Raises FencedError unless it belongs to `generation`."""
    newest = fence(root, job)
    if newest is None or newest.generation < generation:
        raise FencedError(f"generation {generation} of {job} does not have the job yet")
    if newest.generation > generation:
        raise FencedError(f"generation {newest.generation} of {job} took over from {generation}")
    return newest


def generations(root: Root, job: str) -> list[int]:
    """The generations that have a fence, void or not, in descending order.

    Raises DamagedCheckpoint for a file whose name is not a generation: it may be a renamed fence.
    """
    objects, found = job_store(root, job), []
    for name in fence_names(objects):
        if not _GENERATION.fullmatch(name):
            raise DamagedCheckpoint(
                f"{objects.where(fence_key(name))}: the name is not a generation", hint=repair_hint(objects)
            )
        found.append(int(name))
    return sorted(found, reverse=True)


def _in_force(root: Root, job: str, upto: int | None = None) -> Iterator[Fence]:
    for generation in generations(root, job):
        if upto is None or generation <= upto:
            found = fence_of(root, job, generation)
            if found is not None and not found.void:
                yield found


def _established(root: Root, job: str, wanted: Fence) -> Fence:
    """The fence of that generation: `wanted` if there was none. After this returns, it survives a power loss."""
    objects = job_store(root, job)
    with named_errors():
        created = objects.put_if_absent(fence_key(wanted.generation), wanted.to_bytes(job))
        objects.settle(FENCES)
    found = wanted if created else fence_of(root, job, wanted.generation)
    return _established(root, job, wanted) if found is None else found


def _checked(generation: int) -> int:
    if type(generation) is not int or not _GENERATION.fullmatch(str(generation)):
        raise CheckpointError(
            f"{generation!r} is not a valid generation", hint="use a whole number from 1 to 10**18 - 1"
        )
    return generation


def _checked_manifest(manifest: str | None) -> str | None:
    try:
        return None if manifest is None else str(ManifestName.parse(manifest))
    except ValueError as error:
        raise CheckpointError(str(error)) from None
