"""Finds the C compiler. Tests use it to build the library that gives a process a wrong clock."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "CC"
PACKAGE = "gcc libc6-dev"
REMEDY = f"sudo apt-get install --no-install-recommends {PACKAGE}, or set {VARIABLE} to the path of a C compiler"


def find() -> Path | None:
    """The path of a C compiler; None if there is none."""
    found = shutil.which(os.environ.get(VARIABLE) or "cc") or shutil.which("gcc")
    return Path(found) if found else None
