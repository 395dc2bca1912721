"""Which catalogue is in force: the one that came with this version, or a later one that was installed for this user."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from providers.catalog.files import DATA, CatalogError, Finding, day_ms
from providers.catalog.manifest import NAME, Manifest, read_manifest

CURRENT = "current.json"
_AGAIN = "install one again: tradewind catalog update; or remove it, for the one that came with Tradewind"
_FOLDER = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9a-f]{8}-\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class InForce:
    """A catalogue's folder. `installed`: it did not come with this version of Tradewind."""

    folder: Path
    installed: bool


def home() -> Path:
    """Where this user's installed catalogues lie; it need not exist."""
    from platformdirs import user_data_path

    return user_data_path("tradewind") / "catalog"


def in_force() -> InForce:
    """The catalogue that is meant to count: an installed one, unless a later one came with this version of Tradewind.

    Raises CatalogError when it cannot be told which was installed.
    """
    pointer = home() / CURRENT
    try:
        body = json.loads(pointer.read_text(encoding="utf-8"))
        name, date, over = body["folder"], body["date"], body["instead_of"]
        known = day_ms(date) is not None and day_ms(over) is not None and _FOLDER.fullmatch(name) is not None
    except (FileNotFoundError, NotADirectoryError):
        return InForce(DATA, False)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(pointer, f"cannot be read: {type(error).__name__}") from error
    folder = pointer.parent / name / DATA.name
    if not known or not (folder / NAME).is_file():
        raise _damaged(pointer, "names no catalogue that is there")
    if came_with().date > max(date, over):
        return InForce(DATA, False)
    return InForce(folder, True)


@cache
def came_with() -> Manifest:
    """The manifest of the catalogue that came with this version. Raises CatalogError."""
    findings: list[Finding] = []
    found = read_manifest(DATA, findings.append)
    if found is None:
        raise CatalogError(findings)
    return found


def _damaged(pointer: Path, message: str) -> CatalogError:
    return CatalogError([Finding(str(pointer), 0, "", message, _AGAIN)])
