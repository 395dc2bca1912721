"""The key of an environment: a hash of everything that its set-up depends on, so that equal environments are built once
per machine.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainers.spec import SetupSpec

_FORMAT = "2"  # version of the layout in trainers.process.environment
_SOURCES = frozenset({".py", ".toml", ".cfg", ".txt", ".in", ".c", ".cc", ".cpp", ".cu", ".h", ".pyx"})
_MOST_FILES = 10_000
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_INCLUDED = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]\s*(\S+)")


def key_of(setup: SetupSpec) -> str:
    """32 hexadecimal digits from the command, the requirements, the Python version, the files and folders that they
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
    """The content of a named file or folder, and of the requirements files that it includes."""
    pending = [(folder, name)]
    while pending:
        folder, name = pending.pop()
        with suppress(OSError, RuntimeError):  # a cycle of links, or nothing to read: the set-up will report it
            path = (folder / name).resolve()
            if not name or path in seen:
                continue
            seen.add(path)
            if path.is_file():
                yield from (name, _content(path))
                if path.suffix in (".txt", ".in"):
                    with path.open(encoding="utf-8", errors="replace") as lines:
                        included = [found[1] for line in lines if (found := _INCLUDED.match(line))]
                    pending += [(path.parent, each) for each in reversed(included)]
            elif path.is_dir() and ("/" in name or name == "." or (path / "pyproject.toml").is_file()):
                yield str(path)  # installed packages may refer to this path
                yield from _package(path)


def _content(path: Path) -> bytes:
    """A hash of a file, which may be larger than the memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _package(folder: Path) -> Iterator[str | bytes]:
    """The source files of an installed folder."""
    found = 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__pycache__")) or part.endswith(".egg-info") for part in parts)
        if path.suffix in _SOURCES and not hidden and path.is_file():
            yield from ("/".join(parts), _content(path))
            found += 1
        if found >= _MOST_FILES:
            return
