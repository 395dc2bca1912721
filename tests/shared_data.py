"""Where the project's shared data lie: the folder `shared` beside the repository. Tests that need them skip without.

TRADEWIND_SHARED names another folder (in a worktree, say).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")


def shared(name: str) -> Path:
    """A file or folder in it; the test is skipped where there is none."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"needs shared data that are not here: {name}")
    return path
