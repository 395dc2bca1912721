"""The folder to which a program without attach() writes its checkpoints, if the job's checkpoints go to a bucket.

The program sees a folder of its machine. While it runs, its files are copied to the bucket; the job's next run finds
them in its folder on any machine. The bucket has states of the whole folder, each with the files that were complete
when it was taken:

    <root>/<job>/own/states/<generation>-<number>.json   path, size and hash of each file, after its files
    <root>/<job>/own/files/<generation>-<blake2b of the content>

Runs do not share files, and a run that has lost the job can write at most one more state. So even after a long pause,
it cannot delete files that a newer run needs.

A file counts as complete if it has not changed between two checks, PAUSE_S apart; until then, its previous content
stays in the state. So a program that writes a checkpoint under another name and renames it loses at most the data since
the last check. When the program has ended, all files are complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trainers.checkpoint.fences import require_ownership
from trainers.checkpoint.place import read
from trainers.errors import DamagedCheckpoint, FencedError, TrainerError
from trainers.objects.base import ObjectStore
from trainers.objects.pace import Pace, PacedFile

PAUSE_S = 10.0
KEPT = 2
"""The number of kept states: the newest may be damaged, and a run that has just lost the job may add one."""
_STATES, _FILES, _PIECE_BYTES, _MOST_BYTES = "own/states", "own/files", 16 << 20, 64 << 20
_LONGEST_NAME, _OLDER = 255, "an older state is used"
_FILE = re.compile(r"(\d{1,15})-([0-9a-f]{64})")
_STATE = re.compile(r"(\d{1,15})-(\d{1,15})\.json")


class _Look(NamedTuple):
    """The properties of a file that show whether it has changed."""

    size_bytes: int
    modified_ns: int
    inode: int


class OwnFolder:
    """`folder` of this machine and its copy in the store, for a run of `generation`."""

    def __init__(
        self, folder: Path, root: ObjectStore, job: str, generation: int, max_upload_bytes_per_s: float | None = None
    ) -> None:
        """`max_upload_bytes_per_s`: the limit until `hurry` is called."""
        self._folder, self._root, self._job, self._generation = folder, root, job, generation
        self._pace, self._hurried = Pace(max_upload_bytes_per_s), threading.Event()
        self._storing = threading.Lock()
        self._objects = root.child(job)
        self._seen: dict[str, _Look] = {}
        self._stored: dict[str, tuple[_Look | None, list[Any]]] = {}  # None: stored by another machine
        self._number = 0

    def restore(self) -> None:
        """Create the folder, with the newest state whose files are intact. It appears when it is complete.

        Raises DamagedCheckpoint if there are states and none is intact, and ObjectStoreError.
        """
        filling, damages = self._folder.with_name(f"{self._folder.name}.filling"), list[DamagedCheckpoint]()
        for _, _, key in reversed(self._states()):
            shutil.rmtree(filling, ignore_errors=True)
            filling.mkdir(parents=True)
            try:
                files = self._read(key)
                for path, (name, size_bytes) in files.items():
                    self._fetch(filling / path, name, size_bytes)
            except DamagedCheckpoint as damage:
                sys.stderr.write(f"{damage}\n")
                damages.append(damage)
                continue
            filling.rename(self._folder)
            self._stored = {path: (None, [*entry]) for path, entry in files.items()}
            return
        if damages:
            raise damages[0]
        self._folder.mkdir(parents=True)

    def store(self, *, ended: bool = False) -> None:
        """Copy the complete files that have changed; `ended`: the program no longer writes.

        Raises FencedError if another run owns the job, and ObjectStoreError.
        """
        with self._storing:
            self._store(ended=ended)

    def _store(self, *, ended: bool) -> None:
        looks, found = self._looks(), dict[str, tuple[_Look | None, list[Any]]]()
        for path, look in looks.items():
            stored = self._stored.get(path)
            if stored is None or stored[0] != look:
                complete = ended or self._seen.get(path) == look
                entry = self._put(path, look) if complete else None
                stored = stored if entry is None else (look, entry)
            if stored is not None:
                found[path] = stored
        self._seen = looks
        files = {path: entry for path, (_, entry) in found.items()}
        if files != {path: entry for path, (_, entry) in self._stored.items()}:
            self._commit(files)
        self._stored = found

    def _looks(self) -> dict[str, _Look]:
        """The look at each file, by its path in the folder."""
        found = {}
        for place, _, names in os.walk(self._folder):
            for name in names:
                path = Path(place, name).relative_to(self._folder).as_posix()
                if (look := self._look(path)) is not None:
                    found[path] = look
        return found

    def _look(self, path: str) -> _Look | None:
        """The look at a path; None if it is not a file, or is gone."""
        try:
            found = (self._folder / path).lstat()
        except FileNotFoundError:
            return None
        return _Look(found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None

    def _put(self, path: str, look: _Look) -> list[Any] | None:
        """Copy a file; None if it has changed in the meantime or is gone."""
        try:
            with PacedFile(self._folder / path, self._wait) as file:
                digest = hashlib.file_digest(file, _hash).hexdigest()
                if self._look(path) != look:
                    return None
                name = f"{self._generation}-{digest}"
                if self._objects.head(f"{_FILES}/{name}") is None:
                    file.seek(0)
                    self._objects.put_file(f"{_FILES}/{name}", file)
        except FileNotFoundError:
            return None
        return [name, look.size_bytes] if self._look(path) == look else None

    def hurry(self) -> None:
        """Store without a bandwidth limit from now on, because something waits for it."""
        self._hurried.set()

    def _wait(self, size_bytes: int) -> None:
        if not self._hurried.is_set() and (wait_s := self._pace.wait_s(size_bytes, time.monotonic())) > 0:
            self._hurried.wait(wait_s)

    def _commit(self, files: Mapping[str, list[Any]]) -> None:
        require_ownership(self._root, self._job, self._generation)
        states, raw = self._states(), json.dumps({"files": files}).encode()
        self._number = max([self._number, *(number for of, number, _ in states if of == self._generation)]) + 1
        key = f"{_STATES}/{self._generation}-{self._number}.json"
        self._objects.put(key, hashlib.sha256(raw).hexdigest().encode() + raw)
        self._collect([*states, (self._generation, self._number, key)])

    def _collect(self, states: list[tuple[int, int, str]]) -> None:
        """Delete files that no kept state needs."""
        needed = set[str]()
        for _, _, key in states[-KEPT:]:
            try:
                needed |= {name for name, _ in self._read(key).values()}
            except DamagedCheckpoint:
                continue
        names = [key[len(_FILES) + 1 :] for key in self._objects.keys(_FILES)]
        old = [name for name in names if (of := _FILE.fullmatch(name)) and int(of[1]) <= self._generation]
        unused = [f"{_FILES}/{name}" for name in old if name not in needed]
        self._objects.delete(*(key for _, _, key in states[:-KEPT]), *unused)

    def _states(self) -> list[tuple[int, int, str]]:
        """(generation, number, key) of all states that this run may use, in ascending order."""
        names = [(_STATE.fullmatch(key[len(_STATES) + 1 :]), key) for key in self._objects.keys(_STATES)]
        found = sorted((int(name[1]), int(name[2]), key) for name, key in names if name)
        return [state for state in found if state[0] <= self._generation]

    def _read(self, key: str) -> dict[str, tuple[str, int]]:
        """The stored name and the size of each file of a state. Raises DamagedCheckpoint."""
        raw = read(self._objects, key, _MOST_BYTES, hint=_OLDER) or b""
        if hashlib.sha256(raw[64:]).hexdigest().encode() != raw[:64]:
            raise DamagedCheckpoint(f"{self._objects.where(key)} is missing or altered", hint=_OLDER)
        try:
            return _files(json.loads(raw[64:]))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise DamagedCheckpoint(
                f"{self._objects.where(key)} is not valid although its hash matches: {str(error)[:200]}", hint=_OLDER
            ) from error

    def _fetch(self, target: Path, name: str, size_bytes: int) -> None:
        """Write a file of a state. Raises DamagedCheckpoint."""
        key, done = f"{_FILES}/{name}", _hash()
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for begin in range(0, size_bytes, _PIECE_BYTES):
                piece = self._objects.get_range(key, begin, min(begin + _PIECE_BYTES, size_bytes)) or b""
                done.update(piece)
                file.write(piece)
                if not piece:
                    break  # for any size that the state claims
        if done.hexdigest() != name.rpartition("-")[2]:
            raise DamagedCheckpoint(f"{target.name}: {self._objects.where(key)} is missing or altered", hint=_OLDER)


def _files(state: Any) -> dict[str, tuple[str, int]]:
    """The checked files of a state: a program can write its own states, whose hashes match. Raises ValueError,
    LookupError and TypeError."""
    found, folders = dict[str, tuple[str, int]](), set[str]()
    for path, (name, size_bytes) in dict.items(state["files"]):
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > _LONGEST_NAME for part in parts):
            raise ValueError(f"{path!r} is not a path in a folder")
        if type(name) is not str or not _FILE.fullmatch(name):
            raise ValueError(f"{path!r} has no stored file")
        if type(size_bytes) is not int or size_bytes < 0:
            raise ValueError(f"{path!r} has no size")
        found[path] = name, size_bytes
        folders |= {"/".join(parts[:depth]) for depth in range(1, len(parts))}
    if clashes := folders & found.keys():
        raise ValueError(f"{min(clashes)!r} is a file and a folder")
    return found


def _hash() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)


@contextmanager
def followed(own: OwnFolder) -> Iterator[None]:
    """Store the folder while a program runs, and after any kind of end. Failures are retried."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(PAUSE_S):
            try_store(own)

    thread = threading.Thread(target=follow, name="tradewind-own-folder", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        own.hurry()
        thread.join()
        try_store(own, ended=True)


def try_store(own: OwnFolder, *, ended: bool = False) -> None:
    """Like OwnFolder.store, but failures are written to standard error."""
    try:
        own.store(ended=ended)
    except FencedError:
        pass  # another run has the job
    except (TrainerError, OSError) as error:
        sys.stderr.write(f"the program's checkpoint folder could not be stored: {error}\n")
