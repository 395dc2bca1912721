"""Data that may lie beside the repository (a folder `shared`, or TRADEWIND_SHARED): tests that need it skip without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared(name: str) -> Path:
    """The path of a file or folder there; skips the test when it is absent."""
    default = Path(__file__).parents[2] / "shared"
    path = Path(os.environ.get("TRADEWIND_SHARED", default)) / name
    if not path.exists():
        pytest.skip(f"{name} is not there: put the shared data beside the repository, or set TRADEWIND_SHARED")
    return path
