"""Updates the catalogue without a release: fetches a published one, checks it and activates it.

A fetched catalogue is limited in size, must match its manifest, and must be plausible, both by itself and compared with
the current one; otherwise nothing changes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from orchestrator.errors import NotFoundError, ProviderFailure, StoreError, UsageError
from orchestrator.services.catalog.contents import refuse
from orchestrator.services.catalog.views import CatalogUpdate
from providers.catalog import Catalog, damage, load, read
from providers.catalog import verify as examine
from providers.catalog.files import Finding, day_ms
from providers.catalog.install import activate, install_lock, stage
from providers.catalog.installed import bundled_manifest, home
from providers.catalog.manifest import MAX_MANIFEST_BYTES, NAME, SHA256, Manifest, check_file, parse
from providers.collect.http import Http, Patience
from providers.errors import NotFoundError as ProviderNotFoundError
from providers.errors import ProviderError

DAY_MS = 86_400_000
LEAST_LEFT = 0.5
"""A catalogue with less than this share of the current number of offers is rejected as damaged."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def update(now_ms: int, at: str, *, sha256: str | None = None, force: bool = False) -> CatalogUpdate:
    """Installs the catalogue whose manifest is `at` a URL or path; a folder, or a URL that ends in /, means the
    manifest.json in it.

    `sha256` is the manifest's hash, published elsewhere. `force` installs a catalogue that is older or much smaller
    than the current one. Raises UsageError if the catalogue is rejected, SpecError if it is damaged or implausible,
    NotFoundError, ProviderFailure, StoreError if it cannot be written.
    """
    if sha256 is not None and not SHA256.fullmatch(sha256.lower()):
        raise UsageError(f"--sha256 {sha256} is not a SHA-256 hash", hint="give 64 hexadecimal digits")
    origin, shown = _origin(at, pinned=sha256 is not None), _shown(at)
    data = origin.manifest()
    manifest = _manifest(data, sha256)
    try:
        with install_lock() as place:
            before = load()
            if manifest.version == before.version and not damage():
                return CatalogUpdate(shown, before.version, len(before.rows), before.version, len(before.rows), False)
            _refuse_by_date(manifest, before, now_ms, force)
            files = _files(origin, manifest)
            folder = stage(place, data, manifest, files)
            try:
                made = _sound(folder, before, now_ms, force)
            except BaseException:
                shutil.rmtree(folder.parent)
                raise
            activate(folder, manifest, bundled_manifest().date)
    except OSError as error:
        raise StoreError(
            f"the catalogue cannot be written to {home()}: {error.strerror}",
            hint="free some space, or fix its permissions",
        ) from error
    return CatalogUpdate(shown, made.version, len(made.rows), before.version, len(before.rows), True)


def _manifest(data: bytes, sha256: str | None) -> Manifest:
    findings: list[Finding] = []
    if len(data) > MAX_MANIFEST_BYTES:
        findings.append(Finding(NAME, 0, "", f"has more than {MAX_MANIFEST_BYTES} bytes", "name a manifest"))
    found = None if findings else parse(data, NAME, findings.append)
    refuse(findings)
    assert found is not None
    if sha256 is not None and found.sha256 != sha256.lower():
        raise UsageError(
            f"the manifest does not match --sha256: its hash is {found.sha256}",
            hint="compare it with the publisher's hash; nothing was installed",
        )
    return found


def _refuse_by_date(manifest: Manifest, before: Catalog, now_ms: int, force: bool) -> None:
    if (day_ms(manifest.date) or 0) > now_ms + DAY_MS:
        raise UsageError(
            f"the catalogue is dated {manifest.date}, which is in the future",
            hint="check this machine's clock; if it is right, report it to the publisher",
        )
    if manifest.date < before.date and not force:
        raise UsageError(
            f"the catalogue of {manifest.date} is older than the current one of {before.date}",
            hint="add --force to install it anyway",
        )


def _files(origin: _Origin, manifest: Manifest) -> dict[str, bytes]:
    findings: list[Finding] = []
    files = {}
    for name, entry in manifest.files.items():
        data = origin.file(name, entry.size_bytes)
        if check_file(name, data, entry, findings.append):
            files[name] = data
    refuse(findings)
    return files


def _sound(folder: Path, before: Catalog, now_ms: int, force: bool) -> Catalog:
    """The catalogue in a folder, after all checks."""
    refuse(examine(now_ms, folder).findings)
    made = read(folder)
    if len(made.rows) < LEAST_LEFT * len(before.rows) and not force:
        raise UsageError(
            f"the catalogue of {made.date} has {len(made.rows)} offers; the current one has {len(before.rows)}",
            hint="it may be damaged; add --force to install it anyway",
        )
    return made


class _Origin(Protocol):
    """The location of a published catalogue: a manifest with its files beside it. Raises NotFoundError,
    ProviderFailure."""

    def manifest(self) -> bytes: ...

    def file(self, name: str, most_bytes: int) -> bytes:
        """The content of a file, truncated to `most_bytes` + 1 bytes."""
        ...


def _origin(at: str, *, pinned: bool) -> _Origin:
    parts = urlsplit(at)
    if parts.scheme in ("http", "https"):
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and not pinned:
            raise UsageError(
                f"{_shown(at)} is not encrypted: the catalogue could be replaced in transit",
                hint="use https, or give the manifest's hash with --sha256",
            )
        return _Url(at)
    if parts.scheme and re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]+:.*", at):
        raise UsageError(f"{_shown(at)} is neither an http(s) URL nor a path", hint="give a path without a scheme")
    return _Folder(Path(at))


def _shown(at: str) -> str:
    """A URL without its user name, password and query, which may be secret."""
    parts = urlsplit(at)
    return (
        parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl() if parts.netloc else at
    )


class _Url:
    def __init__(self, at: str) -> None:
        parts = urlsplit(at)
        self._at = parts._replace(path=f"{parts.path}{NAME}") if parts.path.endswith("/") else parts
        self._http = Http(Patience())

    def manifest(self) -> bytes:
        return self._get(self._at, MAX_MANIFEST_BYTES)

    def file(self, name: str, most_bytes: int) -> bytes:
        folder = self._at.path.rpartition("/")[0]
        return self._get(self._at._replace(path=f"{folder}/{name}"), most_bytes)

    def _get(self, address: SplitResult, most_bytes: int) -> bytes:
        try:
            return self._http.get_bytes(address.geturl(), most_bytes=most_bytes)
        except ProviderNotFoundError as error:
            raise NotFoundError(str(error), hint="give the URL of a catalogue's manifest.json") from error
        except ProviderError as error:
            raise ProviderFailure(str(error), hint=error.hint or "nothing was installed; try again later") from error


class _Folder:
    def __init__(self, at: Path) -> None:
        self._manifest = at / NAME if at.is_dir() else at

    def manifest(self) -> bytes:
        return self._read(self._manifest, MAX_MANIFEST_BYTES)

    def file(self, name: str, most_bytes: int) -> bytes:
        return self._read(self._manifest.parent / name, most_bytes)

    def _read(self, path: Path, most_bytes: int) -> bytes:
        try:
            if not path.is_file():  # a pipe would never end
                raise NotFoundError(f"{path} is not a file", hint="give a catalogue's manifest.json, or its folder")
            with path.open("rb") as file:
                return file.read(most_bytes + 1)
        except OSError as error:
            raise NotFoundError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
