"""The manifest of a catalogue: its date, and the size and SHA-256 of every file, so that only published data is used.

The manifest's own hash identifies the whole catalogue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.catalog.files import Finding, Report, day_ms
from providers.tables import shown

NAME = "manifest.json"
FORMAT = 1
MAX_MANIFEST_BYTES = 256 << 10
MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 64 << 20
MAX_FILES = 100
FILE_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}\.csv", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
NEEDED = ("accelerators", "continents", "egress", "excluded", "flagged", "instance_types", "known_regions", "sources")
REPUBLISH = "get a complete catalogue from its publisher; to make one: python -m scripts.seal_catalog DATE"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a catalogue: its size and SHA-256 (hexadecimal)."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """`date` is the day on which the catalogue was made; `sha256` is the hash of the manifest itself."""

    date: str
    files: Mapping[str, Entry]
    sha256: str

    @property
    def version(self) -> str:
        """The date and enough of the hash to distinguish catalogues of one day."""
        return f"{self.date}-{self.sha256[:8]}"


def parse(data: bytes, where: str, report: Report) -> Manifest | None:
    """The manifest in `data`; None, with findings, if it is not valid. `where` names it in the findings."""
    try:
        body = json.loads(data.decode())
    except json.JSONDecodeError as error:
        report(Finding(where, error.lineno, "", f"is not JSON: {error.msg}", REPUBLISH))
        return None
    except (UnicodeDecodeError, RecursionError, ValueError):
        report(Finding(where, 0, "", "is not JSON in UTF-8", REPUBLISH))
        return None
    wrong = list(_wrong(body))
    for field, message in wrong:
        report(Finding(where, 0, field, message, REPUBLISH))
    if wrong:
        return None
    files = {name: Entry(entry["size_bytes"], entry["sha256"]) for name, entry in body["files"].items()}
    return Manifest(body["date"], files, _sha256(data))


def _wrong(body: Any) -> list[tuple[str, str]]:
    """(field, problem) for everything that is wrong with it."""
    if not isinstance(body, dict) or set(body) != {"format", "date", "files"}:
        return [("", "must have exactly format, date and files")]
    if body["format"] != FORMAT:
        return [("format", f"is {shown(str(body['format']))}: this version of Tradewind reads format {FORMAT}")]
    found = []
    if not isinstance(body["date"], str) or day_ms(body["date"]) is None:
        found.append(("date", f"is {shown(str(body['date']))}, not a day as YYYY-MM-DD"))
    files = body["files"]
    if not isinstance(files, dict) or not 0 < len(files) <= MAX_FILES:
        return [*found, ("files", f"must name 1 to {MAX_FILES} files")]
    for name, entry in files.items():
        field = f"files.{shown(name)}"
        if not FILE_NAME.fullmatch(name):
            found.append((field, "is not a valid file name (a-z, 0-9 and _, then .csv)"))
        if not isinstance(entry, dict) or set(entry) != {"size_bytes", "sha256"}:
            found.append((field, "must have exactly size_bytes and sha256"))
            continue
        size = entry["size_bytes"]
        if type(size) is not int or not 0 < size <= MAX_FILE_BYTES:
            found.append((f"{field}.size_bytes", f"must be from 1 to {MAX_FILE_BYTES}"))
        if not isinstance(entry["sha256"], str) or not SHA256.fullmatch(entry["sha256"]):
            found.append((f"{field}.sha256", "must be 64 lower-case hexadecimal digits"))
    missing = [f"{name}.csv" for name in NEEDED if f"{name}.csv" not in files]
    if missing:
        found.append(("files", f"lacks {', '.join(missing)}"))
    if not found and sum(entry["size_bytes"] for entry in files.values()) > MAX_TOTAL_BYTES:
        found.append(("files", f"exceed {MAX_TOTAL_BYTES} bytes in total"))
    return found


def check_file(name: str, data: bytes, entry: Entry, report: Report) -> bool:
    """True if `data` has the size and hash that the manifest gives; otherwise a finding is reported."""
    if len(data) != entry.size_bytes:
        message = f"has {len(data)} bytes, but the manifest says {entry.size_bytes}"
    elif _sha256(data) != entry.sha256:
        message = "does not match the manifest: its SHA-256 differs"
    else:
        return True
    report(Finding(name, 0, "", message, "download it again; if that does not help, tell the publisher"))
    return False


def read_manifest(folder: Path, report: Report) -> Manifest | None:
    """The manifest in a catalogue's folder; None, with findings, if it cannot be read or is not valid."""
    try:
        with (folder / NAME).open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        report(Finding(NAME, 0, "", f"cannot be read: {error.strerror}", REPUBLISH))
        return None
    if len(data) > MAX_MANIFEST_BYTES:
        report(Finding(NAME, 0, "", f"has more than {MAX_MANIFEST_BYTES} bytes", REPUBLISH))
        return None
    return parse(data, NAME, report)


def verify_files(folder: Path) -> tuple[Finding, ...]:
    """The files in a catalogue's folder that do not match its manifest: changed, truncated, missing or added."""
    findings: list[Finding] = []
    manifest = read_manifest(folder, findings.append)
    if manifest is None:
        return tuple(findings)
    for name, entry in manifest.files.items():
        try:
            with (folder / name).open("rb") as file:
                check_file(name, file.read(MAX_FILE_BYTES + 1), entry, findings.append)
        except OSError as error:
            remedy = "install the catalogue again: tradewind catalog update"
            findings.append(Finding(name, 0, "", f"cannot be read: {error.strerror}", remedy))
    for path in sorted(folder.glob("*.csv")):
        if path.name not in manifest.files:
            remedy = "remove it, or add it to the manifest"
            findings.append(Finding(path.name, 0, "", "is not in the manifest", remedy))
    return tuple(findings)


def sealed(folder: Path, date: str) -> str:
    """The text of a manifest for the files in a folder."""
    files = {}
    for path in sorted(folder.glob("*.csv")):
        data = path.read_bytes()
        files[path.name] = {"size_bytes": len(data), "sha256": _sha256(data)}
    return json.dumps({"format": FORMAT, "date": date, "files": files}, indent=1) + "\n"


def _sha256(data: bytes) -> str:
    import hashlib  # loads OpenSSL, which most commands do not need

    return hashlib.sha256(data).hexdigest()
