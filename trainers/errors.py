"""Every error that a trainer raises on purpose, each with its remedy in the text.

TrainerError
 +- CheckpointError
 |   +- DamagedCheckpoint    the bytes in the folder are not the ones that were written
 |   +- CheckpointFull       no space, quota or file size left
 |   +- CheckpointReadOnly   the folder cannot be written
 |   +- FencedError          another generation of the job owns the folder
 +- StateError              something cannot be saved or restored without pickle
 +- LoaderError             the data position of this loader cannot be resumed
 +- EntryError              the job's module, function or arguments do not exist
 +- SetupError              the environment of a job cannot be set up
 +- MalformedWord           what another process wrote is not what it must be

They travel as text (a run's report), so str() has the remedy; whoever shows it
apart takes `message` and `hint`.
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base: `message` is what is wrong, `hint` the remedy in one sentence, and str() both."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint


class CheckpointError(TrainerError):
    pass


class DamagedCheckpoint(CheckpointError):
    """A manifest or chunk is missing, cut or altered; names the file and what it held."""


class CheckpointFull(CheckpointError):
    pass


class CheckpointReadOnly(CheckpointError):
    pass


class FencedError(CheckpointError):
    pass


class StateError(TrainerError):
    pass


class LoaderError(TrainerError):
    pass


class EntryError(TrainerError):
    pass


class SetupError(TrainerError):
    """The environment of a job could not be set up; has the last lines of output."""


class MalformedWord(TrainerError):
    pass
