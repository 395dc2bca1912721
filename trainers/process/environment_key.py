"""The key of an environment: a hash of everything its set-up depends on, so that equal ones are built once
per machine.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from trainers.spec import SetupSpec

_FORMAT = "1"  # version of the layout in trainers.process.environment
_SOURCES = frozenset({".py", ".toml", ".cfg", ".txt", ".in", ".c", ".cc", ".cpp", ".cu", ".h", ".pyx"})
_MOST_FILES = 10_000
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_INCLUDED = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]\s*(\S+)")


def key_of(setup: SetupSpec) -> str:
    """32 hexadecimal digits from the command, the requirements, the Python version, the files and folders that these
    name, and the variables that they use. Values of secrets are not included.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(setup):
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()


def _parts(setup: SetupSpec) -> Iterator[str | bytes]:
    folder = Path(setup.workdir)
    yield from (_FORMAT, sys.version, sys.prefix, setup.python or "", setup.command or "")
    yield from setup.requirements
    used = set(_VARIABLE.findall(setup.command or ""))
    for name in sorted(setup.env):
        if name in used or name.startswith(("PIP_", "UV_")):
            yield from (name, setup.env[name])
    seen: set[Path] = set()
    for name in (*setup.requirement_files, *_words(setup.command or ""), *setup.requirements):
        yield from _named(folder, name, seen)


def _words(command: str) -> Iterator[str]:
    """Words of the command that may be names of files it reads, including `--requirement=x` and `.[extra]`, but not
    after `>`.
    """
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # an unclosed quote: the shell will report it
        words = command.split()
    for before, word in zip(["", *words], words, strict=False):
        if before.endswith(">"):
            continue
        yield re.sub(r"\[[^\]]*\]$", "", word.rpartition("=")[2]).strip(";")


def _named(folder: Path, name: str, seen: set[Path]) -> Iterator[str | bytes]:
    path = (folder / name).resolve() if name else folder
    if not name or path in seen:
        return
    seen.add(path)
    try:
        if path.is_file():
            content = path.read_bytes()
            yield from (name, content)
            if path.suffix in (".txt", ".in"):
                for line in content.decode("utf-8", "replace").splitlines():
                    if included := _INCLUDED.match(line):
                        yield from _named(path.parent, included[1], seen)
        elif path.is_dir() and ("/" in name or name == "." or (path / "pyproject.toml").is_file()):
            yield str(path)  # installed packages may refer to this path
            yield from _package(path)
    except OSError:
        return  # it does not exist or cannot be read: the set-up will report it


def _package(folder: Path) -> Iterator[str | bytes]:
    """The source files of a folder that is installed."""
    found = 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__pycache__")) or part.endswith(".egg-info") for part in parts)
        if path.suffix in _SOURCES and not hidden and path.is_file():
            yield from ("/".join(parts), path.read_bytes())
            found += 1
        if found >= _MOST_FILES:
            return
