"""Data: a loader whose position resumes exactly, and data sets that every machine can generate.

Loads torch on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.data.images import Shapes
    from trainers.data.loader import ResumableLoader
    from trainers.data.shards import Shards
    from trainers.data.text import CharacterWindows, standard_library_text

__all__ = ["CharacterWindows", "ResumableLoader", "Shapes", "Shards", "standard_library_text"]

_LAZY = {
    "CharacterWindows": "trainers.data.text",
    "ResumableLoader": "trainers.data.loader",
    "Shapes": "trainers.data.images",
    "Shards": "trainers.data.shards",
    "standard_library_text": "trainers.data.text",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
