"""Find the browser of the page tests.

$CHROMIUM names it; else it is Debian's. Playwright's own download is not used: it would be a second copy.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "CHROMIUM"
PACKAGE = "chromium"
REMEDY = f"sudo apt-get install --no-install-recommends {PACKAGE}, or set {VARIABLE} to a Chromium or Chrome"
_DEBIAN = Path("/usr/bin/chromium")


def find() -> Path | None:
    """The executable of a Chromium, None when there is none."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else _DEBIAN
    return path if os.access(path, os.X_OK) else None
