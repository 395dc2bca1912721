"""Finds the browser for the page tests.

It uses the browser that $CHROMIUM names, or else Debian's. Playwright's download would be a second copy.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "CHROMIUM"
PACKAGE = "chromium"
REMEDY = f"sudo apt-get install --no-install-recommends {PACKAGE}, or set {VARIABLE} to a Chromium or Chrome"
_DEBIAN = Path("/usr/bin/chromium")


def find() -> Path | None:
    """The path of a Chromium executable; None if there is none."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else _DEBIAN
    return path if os.access(path, os.X_OK) else None
