"""Find the browser of the page tests, and install it where that is possible: `python -m scripts.browser`.

$CHROMIUM names it; else it is Debian's. Playwright's own download is not used: it would be a second copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VARIABLE = "CHROMIUM"
DEBIAN = Path("/usr/bin/chromium")
REMEDY = f"sudo apt-get install --no-install-recommends chromium, or set {VARIABLE} to a Chromium or Chrome"


def find() -> Path | None:
    """The executable of a Chromium, None when there is none."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else DEBIAN
    return path if os.access(path, os.X_OK) else None


def install() -> None:
    """Debian's package. Raises CalledProcessError."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "-qq", *arguments], env=environment, stdin=subprocess.DEVNULL, check=True)


def main() -> int:
    if find() is None and VARIABLE not in os.environ and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing Debian's chromium for the page tests", file=sys.stderr)
        install()
    if find() is None:
        print(f"the page tests need a browser: {REMEDY}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
