"""Runtime files: Tradewind's code for machines, as one archive in the store.

The archive has the content of the wheel of the installed packages, made from their files without a build backend, and
the exact versions of all other packages that this process uses and a machine needs.
"""

from __future__ import annotations

import io
import re
import tomllib
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from orchestrator.errors import SiteError

PACKAGES = ("orchestrator", "providers", "trainers")
EXTRAS = ("ray", "storage", "train")
_DIST = "tradewind"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal files give an equal archive


@dataclass(frozen=True, slots=True)
class RuntimeFiles:
    """`archive` is a zip file; its member `pins` lists the packages that it needs, one per line."""

    archive: bytes
    pins: str

    @property
    def sha256(self) -> str:
        """The SHA-256 of the archive in hexadecimal."""
        return sha256(self.archive).hexdigest()

    @property
    def digest(self) -> str:
        """The name of this runtime."""
        return self.sha256[:32]


def runtime_files() -> RuntimeFiles:
    """The runtime files of the packages that this process runs. Raises SiteError if they were not installed."""
    try:
        distribution = metadata.distribution(_DIST)
        version, described = distribution.version, distribution.read_text("METADATA") or ""
        entries = distribution.read_text("entry_points.txt") or ""
        pins = required(_DIST, EXTRAS)
    except metadata.PackageNotFoundError as error:
        raise SiteError(
            f"machines need the package {error.name}, which is not installed here",
            hint=f"install tradewind[{','.join(EXTRAS)}] with pip: machines get the versions that are installed here",
        ) from error
    info = f"{_DIST}-{version}.dist-info"
    members = {f"{info}/METADATA": described.encode(), f"{info}/entry_points.txt": entries.encode()}
    members[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tradewind\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members[f"{info}/INSTALLER"] = b"tradewind\n"
    members[f"{info}/pins.txt"] = "".join(f"{pin}\n" for pin in pins).encode()
    for package in PACKAGES:
        members |= _files(package)
    members[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*members, f"{info}/RECORD"]).encode()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            archive.writestr(_member(name), members[name])
    return RuntimeFiles(whole.getvalue(), f"{info}/pins.txt")


def _files(package: str) -> dict[str, bytes]:
    folder = _folder(package)
    return {
        path.relative_to(folder.parent).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def _folder(package: str) -> Path:
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


def required(name: str, extras: tuple[str, ...]) -> list[str]:
    """Every package that a distribution with these extras needs here, sorted: `name==version`, without local versions.

    A package that is not installed is listed as it is required. Raises PackageNotFoundError for the distribution
    itself.
    """
    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(name, extra) for extra in ("", *extras)]
    while waiting:
        of, extra = waiting.pop()
        if (_normal(of), extra) in seen:
            continue
        seen.add((_normal(of), extra))
        for line in _requirements(of):
            wanted = Requirement(line)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            try:
                version = metadata.version(wanted.name)
            except metadata.PackageNotFoundError:
                found[_normal(wanted.name)] = f"{wanted.name}{wanted.specifier}"
                continue
            if _normal(wanted.name) != _normal(name):
                found[_normal(wanted.name)] = f"{wanted.name}=={version.partition('+')[0]}"
            waiting += [(wanted.name, each) for each in ("", *wanted.extras)]
    return [found[each] for each in sorted(found)]


def _requirements(name: str) -> list[str]:
    """The requirements of an installed distribution. For Tradewind in a checkout, the current ones, which may be newer
    than those at installation."""
    checkout = _folder(PACKAGES[0]).parent / "pyproject.toml"
    if name != _DIST or not checkout.exists():
        return metadata.distribution(name).requires or []
    project = tomllib.loads(checkout.read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(f"{line} ; extra == '{extra}'" for extra in extras for line in extras[extra])]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
