"""Installs a catalogue for this user.

Every installed catalogue has its own folder; `current.json` names the active one and is replaced atomically, so a
reader sees either the old or the new catalogue.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from providers.catalog.files import DATA
from providers.catalog.installed import CURRENT, home
from providers.catalog.manifest import NAME, Manifest


@contextmanager
def install_lock() -> Iterator[Path]:
    """The folder of installed catalogues, created if missing and locked for one process at a time. Raises OSError."""
    place = home()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (place / "update.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield place


def stage(place: Path, manifest_data: bytes, manifest: Manifest, files: Mapping[str, bytes]) -> Path:
    """Write these files to a new folder, safely on disk, and return it. Nothing uses it before `activate`. Raises
    OSError.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{manifest.version}-", dir=place), DATA.name)
    folder.mkdir()
    for name, data in {NAME: manifest_data, **files}.items():
        _write(folder / name, data)
    _sync(folder)
    return folder


def activate(folder: Path, manifest: Manifest, instead_of: str) -> None:
    """Make the catalogue in `folder` the active one; `instead_of` is the date of the catalogue bundled with this
    version.

    The previous one is kept; older ones and leftovers of interrupted updates are removed. Raises OSError.
    """
    place, own = folder.parent.parent, folder.parent
    before = _named(place / CURRENT)
    text = json.dumps({"folder": own.name, "date": manifest.date, "instead_of": instead_of})
    _write(place / f"{CURRENT}.new", text.encode())
    os.replace(place / f"{CURRENT}.new", place / CURRENT)
    _sync(place)
    for other in place.iterdir():
        if other.is_dir() and not other.is_symlink() and other.name not in (own.name, before):
            shutil.rmtree(other)


def _named(pointer: Path) -> str:
    """The folder that a pointer file names; '' if it names none."""
    try:
        return str(json.loads(pointer.read_text(encoding="utf-8"))["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
