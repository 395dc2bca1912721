"""Access to the objects of one job's checkpoints, in the store that the root names, and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainers.errors import (
    CheckpointFull,
    CheckpointReadOnly,
    DamagedCheckpoint,
    StoreFull,
    StoreReadOnly,
    UnreadableObject,
)
from trainers.objects.base import ObjectStore
from trainers.objects.opening import Root, open_store


def job_store(root: Root, job: str) -> ObjectStore:
    """The job's objects below `root`: a path, an URL or an open store. Raises ObjectStoreError."""
    return open_store(root).child(job)


def read(objects: ObjectStore, key: str, most_bytes: int, *, hint: str = "move it away") -> bytes | None:
    """The content of an object; None if it is missing.

    Raises DamagedCheckpoint with `hint` if it has more than `most_bytes` or is not a regular file. Raises
    ObjectStoreError.
    """
    try:
        found = objects.get(key, most_bytes)
    except UnreadableObject as error:
        raise DamagedCheckpoint(error.message, hint=hint) from error
    return None if found is None else found.data


@contextmanager
def named_errors() -> Iterator[None]:
    """Convert the store's refusal to write to CheckpointFull or CheckpointReadOnly, with the job's own remedies."""
    try:
        yield
    except StoreFull as error:
        raise CheckpointFull(
            f"cannot write the checkpoint: {error.message}",
            hint="free space there, lower checkpoint.keep, or point checkpoint.to at a larger disk",
        ) from error
    except StoreReadOnly as error:
        raise CheckpointReadOnly(
            f"cannot write the checkpoint: {error.message}",
            hint="make the folder writable for this user, or point checkpoint.to at another one",
        ) from error
