"""Finds the active catalogue: the bundled one, or a newer one that this user has installed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from providers.catalog.files import DATA, CatalogError, Finding, day_ms
from providers.catalog.manifest import NAME, Manifest, read_manifest

CURRENT = "current.json"
_AGAIN = "run: tradewind catalog update; or delete this file to use the bundled catalogue"
_FOLDER = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9a-f]{8}-\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class InForce:
    """The folder of the active catalogue. `installed`: it is not the one bundled with this version of Tradewind."""

    folder: Path
    installed: bool


def home() -> Path:
    """The folder of this user's installed catalogues; it may not exist."""
    from platformdirs import user_data_path

    return user_data_path("tradewind") / "catalog"


def in_force() -> InForce:
    """The active catalogue: an installed one, unless this version of Tradewind bundles a newer one.

    Raises CatalogError if it cannot be determined which one is installed.
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
        raise _damaged(pointer, "names a catalogue that does not exist")
    if bundled_manifest().date > max(date, over):
        return InForce(DATA, False)
    return InForce(folder, True)


@cache
def bundled_manifest() -> Manifest:
    """The manifest of the catalogue bundled with this version. Raises CatalogError."""
    findings: list[Finding] = []
    found = read_manifest(DATA, findings.append)
    if found is None:
        raise CatalogError(findings)
    return found


def _damaged(pointer: Path, message: str) -> CatalogError:
    return CatalogError([Finding(str(pointer), 0, "", message, _AGAIN)])
