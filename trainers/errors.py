"""The errors that a trainer raises on purpose. The text of each includes its remedy.

TrainerError
 +- ObjectStoreError         names the store's URL
 |   +- StoreDenied          the credentials or access rights do not allow it
 |   +- StoreThrottled       too many requests; try again later
 |   +- StoreUnavailable     no answer, or an internal error; a write may or may not have happened
 |   +- StoreFull            a disk, a quota or a file size limit is full
 |   +- StoreReadOnly        nothing can be written there
 |   +- StoreNotFound        the bucket does not exist, is in another region, or the URL names no store
 |   +- UnreadableObject     larger than the reader allows, or not a regular file
 |   +- InvalidKey           not a relative POSIX path
 +- CheckpointError
 |   +- DamagedCheckpoint    the stored bytes differ from the written bytes
 |   +- CheckpointFull       a disk, a quota or a file size limit is full
 |   +- CheckpointReadOnly   the folder cannot be written
 |   +- FencedError          another generation of the job owns the folder
 +- StateError              something cannot be saved or restored without pickle
 +- LoaderError             the position of this data loader cannot be resumed
 +- EntryError              the job's module, function or arguments do not exist
 +- PeerLost                another process of the run ended, or is at another step
 +- SetupError              the environment of a job cannot be set up
 +- MalformedMessage        data from another process is not valid

A run's report has errors as text, so str() includes the remedy; to show it separately, use `message` and `hint`.
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base of all trainer errors: `message` is the problem, `hint` the remedy in one sentence, str() has both."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint


class ObjectStoreError(TrainerError):
    """An object store could not complete a request; names the store's URL."""


class StoreDenied(ObjectStoreError):
    """The credentials or access rights do not allow it."""


class StoreThrottled(ObjectStoreError):
    """The store rejects requests because there are too many, also after some retries."""


class StoreUnavailable(ObjectStoreError):
    """No answer in time, or an internal error of the store, also after some retries.

    A write may have happened, or may still happen.
    """


class StoreFull(ObjectStoreError):
    """A disk, a quota or a file size limit is full."""


class StoreReadOnly(ObjectStoreError):
    """Nothing can be written there."""


class StoreNotFound(ObjectStoreError):
    """The bucket does not exist or is in another region, or the URL names no store."""


class UnreadableObject(ObjectStoreError):
    """The object is larger than the reader allows, or not a regular file."""


class InvalidKey(ObjectStoreError):
    """The key is not a relative POSIX path, or is too long."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be written, read or committed."""


class DamagedCheckpoint(CheckpointError):
    """A manifest or chunk is missing, truncated or altered; names the file and what it contained."""


class CheckpointFull(CheckpointError):
    """There is no room for the checkpoint: a disk, a quota or a file size limit is full."""


class CheckpointReadOnly(CheckpointError):
    """The checkpoint folder cannot be written."""


class FencedError(CheckpointError):
    """Another generation of the job owns the checkpoint folder."""


class StateError(TrainerError):
    """Something cannot be saved or restored without pickle."""


class LoaderError(TrainerError):
    """The position of this data loader cannot be resumed exactly."""


class EntryError(TrainerError):
    """The job's module, function, script or arguments do not exist or do not fit."""


class PeerLost(TrainerError):
    """Another process of the run cannot be reached, has failed, or is at another step."""


class SetupError(TrainerError):
    """The environment of a job could not be set up; has the last lines of output."""


class MalformedMessage(TrainerError):
    """Data from another process is not valid."""


def message_of(error: BaseException) -> str:
    """The text of an error; empty if its class, which may be the user's, fails to produce it."""
    try:
        return str(error)
    except BaseException:
        return ""
