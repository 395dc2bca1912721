"""Lists, verifies and prunes the checkpoints of a job, by the rules of its trainer (trainers.checkpoint)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from orchestrator.engine.jobs.left_behind import left_behind
from orchestrator.errors import NotFoundError, StoreError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.services.checkpoints.elsewhere import is_copied
from orchestrator.services.checkpoints.views import CheckpointList, CheckpointsPruned, StoredCheckpoint
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName
from trainers.checkpoint.retention import Keep, collect, surplus
from trainers.errors import CheckpointError, DamagedCheckpoint, TrainerError
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store

LARGEST = 10**18 - 1
"""A generation that no run has, so that all checkpoints of the job may be used."""


@contextmanager
def readable() -> Iterator[None]:
    """Convert the errors of trainers to StoreError."""
    try:
        yield
    except TrainerError as error:
        raise StoreError(error.message, hint=error.hint) from error


def place_of(installation: Installation, ref: str) -> tuple[Job, ObjectStore]:
    """A job and the open store of its checkpoints. Raises NotFoundError, StoreError."""
    with installation.store.read() as tx:
        job = tx.find_job(ref)
    with readable():
        return job, open_store(installation.checkpoint_root(job.spec.checkpoint.to))


def checkpoints(installation: Installation, ref: str, *, verify: bool = False) -> CheckpointList:
    """The checkpoints of a job. With `verify`, every byte of them is read; otherwise it only checks that all parts
    exist.

    Raises NotFoundError, StoreError.
    """
    job, root = place_of(installation, ref)
    found = list[StoredCheckpoint]()
    with readable():
        counting = set[ManifestName]()
        with suppress(DamagedCheckpoint):  # a damaged fence: the first checkpoint reports it
            counting = {*store.counting(root, job.id, LARGEST)}
        known = frozenset[str]()
        for name in store.manifests(root, job.id):
            one, chunks = _one(root, job.id, name, name in counting, known, verify=verify)
            found.append(one)
            known |= chunks
    left = what_is_left(installation, job)
    return CheckpointList(job.name, job.id, root.child(job.id).url, tuple(reversed(found)), verify, left)


def what_is_left(installation: Installation, job: Job) -> str:
    """What the job saved in a former `store_root` that is missing in the current one, and the remedy; "" if nothing is
    missing. Raises StoreError."""
    with installation.store.read() as tx:
        left = left_behind(installation, tx, job)
    if left is None or left.latest is None or is_copied(installation, job, left):
        return ""
    return f"{left.what}, but store_root is now {installation.config.store_root}: {left.remedy}"


def _one(
    root: ObjectStore, job_id: str, name: ManifestName, counts: bool, known: frozenset[str], *, verify: bool
) -> tuple[StoredCheckpoint, frozenset[str]]:
    manifest, problem = None, ""
    try:
        manifest = store.read_manifest(root, job_id, name)
        if verify:
            store.verify(root, job_id, name)
        else:
            missing = manifest.chunks() - store.chunk_sizes(root, job_id, manifest.chunks()).keys()
            problem = f"{len(missing)} of its chunks are missing, for example {min(missing)}" if missing else ""
    except DamagedCheckpoint as damage:
        problem = damage.message
    except CheckpointError as newer:
        problem = f"{newer.message} ({newer.hint})"
    return _described(name, manifest, counts, known, problem), frozenset() if manifest is None else manifest.chunks()


def _described(
    name: ManifestName, manifest: Manifest | None, counts: bool, known: frozenset[str], problem: str
) -> StoredCheckpoint:
    about = {} if manifest is None else manifest.about
    saved_at = about.get("saved_at")
    tensors = () if manifest is None else manifest.tensors
    pieces = [piece for tensor in tensors for piece in tensor.pieces]
    return StoredCheckpoint(
        name=str(name),
        step=name.step,
        generation=name.generation,
        counts=counts,
        ranks=0 if manifest is None else manifest.world_size,
        size_bytes=sum(piece.end - piece.begin for piece in pieces),
        new_bytes=sum(piece.end - piece.begin for piece in pieces if piece.chunk not in known),
        saved_at_ms=None if saved_at is None else round(saved_at * 1000),
        loss=about.get("loss"),
        problem=problem,
    )


def prune(
    installation: Installation, ref: str, *, keep: int, hourly: int = 0, best: int = 0, dry_run: bool = False
) -> CheckpointsPruned:
    """Delete the checkpoints of a job that is not running, except the newest `keep`, the last one of each of the latest
    `hourly` hours, and the `best` by loss; and all data that no checkpoint needs.

    Raises NotFoundError, StoreError, and UsageError while a run of the job could write checkpoints.
    """
    if keep < 1:
        raise UsageError("at least one checkpoint must be kept", hint="use --keep 1 or more")
    job, root = place_of(installation, ref)
    with installation.store.read() as tx:
        open_runs = [run for run in tx.runs(job_id=job.id) if run.end is None]
        name = tx.typed_name(job.id, job.name)
    if open_runs:
        raise UsageError(
            f"{job.name} is running: its run deletes old checkpoints itself and writes new ones",
            hint=f"set checkpoint.keep in its job file, or first run: tradewind pause {name}",
        )
    wanted = Keep(keep, hourly, best)
    with readable():
        owner = store.fence(root, job.id)
        if owner is None:
            hint = what_is_left(installation, job) or f"see what it did: tradewind status {name}"
            raise NotFoundError(f"{job.name} has no checkpoints", hint=hint)
        gone, freed_bytes = surplus(root, job.id, owner.generation, wanted)
        kept = [name for name in store.manifests(root, job.id) if name not in gone]
        if not dry_run:
            collect(root, job.id, owner.generation, wanted)
    return CheckpointsPruned(
        job.name,
        job.id,
        root.child(job.id).url,
        dry_run,
        tuple(map(str, reversed(gone))),
        tuple(map(str, reversed(kept))),
        freed_bytes,
    )
