"""trainers: makes a PyTorch training loop stoppable, movable and bit-exactly resumable, on any rented machine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainers.errors import (
    CheckpointError,
    CheckpointFull,
    CheckpointReadOnly,
    DamagedCheckpoint,
    EntryError,
    FencedError,
    LoaderError,
    PeerLost,
    StateError,
    TrainerError,
)
from trainers.spec import TrainerSpec

if TYPE_CHECKING:
    from trainers.data.loader import ResumableLoader
    from trainers.loop.session import attach
    from trainers.loop.training_loop import TrainingLoop
    from trainers.runner import execute

__all__ = [
    "CheckpointError",
    "CheckpointFull",
    "CheckpointReadOnly",
    "DamagedCheckpoint",
    "EntryError",
    "FencedError",
    "LoaderError",
    "PeerLost",
    "ResumableLoader",
    "StateError",
    "TrainerError",
    "TrainerSpec",
    "TrainingLoop",
    "attach",
    "execute",
]

_LAZY = {
    "ResumableLoader": "trainers.data.loader",
    "TrainingLoop": "trainers.loop.training_loop",
    "attach": "trainers.loop.session",
    "execute": "trainers.runner",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
