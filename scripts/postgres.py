"""Finds the Postgres programs that tests use to run a server: `initdb`, `pg_ctl` and so on.

They are in the folder that $POSTGRES_BIN names, or else in Debian's newest version, or next to `initdb` on PATH.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "POSTGRES_BIN"
PACKAGE = "postgresql"
REMEDY = f"sudo apt-get install --no-install-recommends {PACKAGE}, or set {VARIABLE} to the folder of initdb and pg_ctl"
_DEBIAN = Path("/usr/lib/postgresql")


def find() -> Path | None:
    """The folder of the server's programs; None if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return _complete(Path(named))
    versions = [path for path in _DEBIAN.glob("*/bin") if path.parent.name.isdecimal()]
    for path in sorted(versions, key=lambda path: int(path.parent.name), reverse=True):
        if _complete(path) is not None:
            return path
    program = shutil.which("initdb")
    return _complete(Path(program).resolve().parent) if program else None


def _complete(folder: Path) -> Path | None:
    return folder if all(os.access(folder / name, os.X_OK) for name in ("initdb", "pg_ctl", "postgres")) else None
