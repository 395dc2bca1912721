"""Key files: refuses a cloud's credentials in a file that every user of this machine can read."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from providers.errors import SetupError

ANYONE = stat.S_IROTH | stat.S_IWOTH


def refuse_open(path: str | Path | None) -> None:
    """Raises SetupError if every user can read or change this file. None, or a file that is missing or cannot be
    examined, is left to the cloud's library to report. The file's group may read it: containers get their secrets this
    way."""
    if not path:
        return
    place = Path(os.path.expanduser(path))
    try:
        mode = place.stat().st_mode
    except OSError:
        return
    if mode & ANYONE:
        raise SetupError(
            f"{place} holds keys, and every user of this machine can read it (mode {stat.S_IMODE(mode):04o})",
            hint=f"chmod 600 {shlex.quote(str(place))}; if others use this machine, replace the keys",
        )
