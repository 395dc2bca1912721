"""The errors that a trainer raises on purpose. The text of each includes its remedy.

TrainerError
 +- CheckpointError
 |   +- DamagedCheckpoint    the bytes in the folder are not those that were written
 |   +- CheckpointFull       no space, quota or file size left
 |   +- CheckpointReadOnly   the folder cannot be written
 |   +- FencedError          another generation of the job owns the folder
 +- StateError              something cannot be saved or restored without pickle
 +- LoaderError             the position of this data loader cannot be resumed
 +- EntryError              the job's module, function or arguments do not exist
 +- SetupError              the environment of a job cannot be set up
 +- MalformedMessage        what another process wrote is not valid

A run's report has them as text, so str() includes the remedy; to show it separately, use `message` and `hint`.
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base of all trainer errors: `message` is the problem, `hint` the remedy in one sentence, str() has both."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint


class CheckpointError(TrainerError):
    """A checkpoint cannot be written, read or committed."""


class DamagedCheckpoint(CheckpointError):
    """A manifest or chunk is missing, truncated or altered; names the file and what it contained."""


class CheckpointFull(CheckpointError):
    """No space, quota or file size is left for the checkpoint."""


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


class SetupError(TrainerError):
    """The environment of a job could not be set up; has the last lines of output."""


class MalformedMessage(TrainerError):
    """What another process wrote is not valid."""
