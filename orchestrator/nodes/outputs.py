"""Outputs: the files in a job's output folder, kept in the store of the job.

    outputs/<generation>/<path>
    outputs/<generation>-<machine>/<path>      from machines 1 and up of a run on several machines

Each generation of a job (one run) writes below its own number, and the newest generation that has a path counts. So a
replaced machine that ships late does not change its successor's files. If several machines of a run write a file of the
same name, the file of the machine with the lowest number counts. The others are kept as `machine-<number>/<path>`, and
each machine finds its own file again. If a path is a file in one place and a folder in another, the newer one counts.
Paths come from programs and machines and are not trusted: only names below one folder are read.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote_to_bytes

from trainers.errors import ObjectStoreError, StoreThrottled, StoreUnavailable, UnreadableObject
from trainers.objects.base import LONGEST_SEGMENT_BYTES, Listed, ObjectStore, is_key

OUTPUTS = "outputs"
MOST_FILES = 100_000
MOST_MACHINES = 10_000  # the limit for one run in the job file
MOST_FILE_BYTES = 100 << 30
PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of a job's outputs in its store."""

    path: str
    key: str
    size_bytes: int


def stored_outputs(store: ObjectStore, *, before: int | None = None, machine: int = 0) -> dict[str, Stored]:
    """The outputs of a job by path, from the newest generation before `before` that has them; files of this `machine`
    take precedence over those of others. Raises ObjectStoreError."""
    newest: dict[str, tuple[int, Listed]] = {}
    for path, generation, writer, listed in _listed(store):
        if before is None or generation < before:
            rank = 0 if writer == machine else writer + 1
            age = generation * (MOST_MACHINES + 2) - rank
            if path not in newest or newest[path][0] < age:
                newest[path] = (age, listed)
    kept = in_one_folder({path: age for path, (age, _) in newest.items()})
    return {path: Stored(path, each.key, each.size_bytes) for path, (_, each) in newest.items() if path in kept}


def set_aside(store: ObjectStore) -> dict[str, Stored]:
    """The files that do not count because another machine of the same run wrote a file of the same name, by
    `machine-<number>/<path>`. Raises ObjectStoreError."""
    counting = {each.key: path for path, each in stored_outputs(store).items()}
    of_path = {path: generation for path, generation, _, listed in _listed(store) if listed.key in counting}
    found = {}
    for path, generation, writer, listed in _listed(store):
        if of_path.get(path) == generation and listed.key not in counting:
            aside = f"machine-{writer}/{path}"
            found[aside] = Stored(aside, listed.key, listed.size_bytes)
    return found


def _listed(store: ObjectStore) -> Iterator[tuple[str, int, int, Listed]]:
    """Path, generation and machine of every stored file."""
    for listed in store.list(OUTPUTS):
        place, _, name = listed.key.removeprefix(f"{OUTPUTS}/").partition("/")
        number, dash, machine = place.partition("-")
        path, of_machine = path_of(name), machine if dash else "0"
        if path is not None and number.isdecimal() and of_machine.isdecimal() and int(of_machine) <= MOST_MACHINES:
            yield path, int(number), int(of_machine), listed


def in_one_folder(ages: Mapping[str, int]) -> set[str]:
    """The paths that can be files of one folder: if a path is also a folder of others, the older ones are left out."""
    kept = set(ages)
    for path in ages:
        for parent in _parents(path):
            if parent in ages:
                kept.discard(parent if ages[parent] < ages[path] else path)
    return kept


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def name_of(path: str) -> str | None:
    """The path of a file as part of a key; None if it is too long for a key."""
    name = "/".join(_encoded(segment) for segment in path.split("/"))
    return name if is_key(name) and is_key(f"{OUTPUTS}/{10**9}/{name}") else None


def path_of(name: str) -> str | None:
    """The inverse, for any name: None if it does not lead below the folder or is not made by `name_of`."""
    path = os.fsdecode(unquote_to_bytes(name))
    if "\0" in path or any(segment in ("", ".", "..") for segment in path.split("/")):
        return None
    return path if name_of(path) == name else None


def _encoded(segment: str) -> str:
    """A segment in which `%` marks bytes that keys do not allow."""
    if is_key(segment) and "%" not in segment:
        return segment
    return "".join(
        letter if letter != "%" and is_key(f"_{letter}") and (place or letter != ".") else _escaped(letter)
        for place, letter in enumerate(segment)
    )


def _escaped(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(letter))


def copy_out(
    store: ObjectStore, stored: Stored, target: Path, progress: Callable[[int], None] = lambda _bytes: None
) -> None:
    """Copy an object to a file, a piece at a time; the file appears when it is complete.

    `progress` is called with the bytes of each piece. Raises ObjectStoreError, also if the object changed meanwhile,
    OSError.
    """
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    found = store.head(stored.key)
    if found is None:
        raise UnreadableObject(f"{store.where(stored.key)} was deleted meanwhile", hint="try again")
    try:
        with open(partial, "xb") as file:
            for begin in range(0, found.size_bytes, PIECE_BYTES):
                piece = store.get_range(stored.key, begin, min(begin + PIECE_BYTES, found.size_bytes)) or b""
                file.write(piece)
                progress(len(piece))
            written = file.tell()
        if written != found.size_bytes or store.head(stored.key) != found:
            raise UnreadableObject(f"{store.where(stored.key)} changed while it was read", hint="try again")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


class OutputWriter:
    """Ships the files that a run changes in its output folder. One thread at a time.

    `complain` is called once with the reason why a file cannot be shipped, `moved` with each shipped piece.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: Path,
        generation: int,
        complain: Callable[[str], None],
        moved: Callable[[], None],
        machine: int = 0,
    ) -> None:
        """`machine` is the number of this machine in its run."""
        self._store, self._folder, self._generation, self._machine = store, folder, generation, machine
        self._complain, self._moved = complain, moved
        self._known: dict[str, tuple[int, int, int]] = {}
        self._folders: set[str] = set()  # states of known files
        self._complaints: set[str] = set()

    def take_over(self) -> None:
        """Fetch the files of earlier generations, except those that this machine has. Raises ObjectStoreError,
        OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path, stored in stored_outputs(self._store, before=self._generation, machine=self._machine).items():
            target = self._folder / path
            if path in self._known or os.path.lexists(target) or not _is_below(target.parent, self._folder):
                continue
            try:
                copy_out(self._store, stored, target, lambda _bytes: self._moved())
            except (FileExistsError, NotADirectoryError):  # a file here is a folder there
                continue
            if (status := _status(target)) is not None:
                self._know(path, status)

    def ship(self) -> None:
        """Ship new and changed files. The next call ships a file again that is written meanwhile. Raises
        ObjectStoreError."""
        first: ObjectStoreError | None = None
        for number, path in enumerate(files_below(self._folder)):
            if number == MOST_FILES:
                self._refuse("", f"there are more than {MOST_FILES} files in the output folder; the rest is not stored")
                return
            status = _status(self._folder / path)
            if status is None or self._known.get(path) == status:
                continue
            name = name_of(path)
            if name is None:
                self._refuse(path, f"its name is too long: at most {LONGEST_SEGMENT_BYTES} bytes for each part")
            elif status[0] > MOST_FILE_BYTES:
                self._refuse(path, f"it is larger than {MOST_FILE_BYTES >> 30} GiB")
            else:
                try:
                    self._make_room(path)
                    if not self._put(path, self._key(name), status[0]):
                        continue
                except (StoreUnavailable, StoreThrottled):
                    raise
                except ObjectStoreError as error:  # perhaps only for this file: the others come first
                    first = first or error
                    continue
            self._know(path, status)
        if first is not None:
            raise first

    def _key(self, name: str) -> str:
        place = f"{self._generation}-{self._machine}" if self._machine else str(self._generation)
        return f"{OUTPUTS}/{place}/{name}"

    def _know(self, path: str, status: tuple[int, int, int]) -> None:
        self._known[path] = status
        self._folders.update(_parents(path))

    def _make_room(self, path: str) -> None:
        """Delete earlier files where `path` needs a folder, and those below a folder that is now the file `path`."""
        gone = [parent for parent in _parents(path) if parent in self._known]
        if path in self._folders:
            gone += [each for each in self._known if each.startswith(f"{path}/")]
            self._folders.discard(path)
        names = [name for each in gone if (name := name_of(each)) is not None]
        if names:
            self._store.delete(*map(self._key, names))
        for each in gone:
            del self._known[each]

    def _put(self, path: str, key: str, size_bytes: int) -> bool:
        """Whether it was shipped or is gone. Ships only its size at the start, because a growing file would take
        forever."""
        try:
            with open(self._folder / path, "rb") as file:
                self._store.put_file(key, cast(BinaryIO, _Watched(file, size_bytes, self._moved)))
        except FileNotFoundError:
            return True
        except OSError as error:  # tried again, because it may become readable
            self._refuse(path, f"it cannot be read: {error.strerror}")
            return False
        return True

    def _refuse(self, path: str, why: str) -> None:
        if path not in self._complaints:
            self._complaints.add(path)
            self._complain(f"{path}: {why}" if path else why)


class _Watched:
    """The first `most_bytes` of a file; reports each read."""

    def __init__(self, file: BinaryIO, most_bytes: int, moved: Callable[[], None]) -> None:
        self._file, self._most_bytes, self._moved = file, most_bytes, moved
        self.tell, self.seek = file.tell, file.seek

    def read(self, size_bytes: int = -1) -> bytes:
        self._moved()
        left = max(0, self._most_bytes - self._file.tell())
        return self._file.read(left if size_bytes < 0 else min(size_bytes, left))


def files_below(folder: Path) -> Iterator[str]:
    """The paths, relative to `folder`, of the regular files in it, and of links to such files. A folder that cannot be
    read is left out."""
    real, waiting = os.path.realpath(folder), [""]
    while waiting:
        parent = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, parent)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        waiting += [os.path.join(parent, entry.name) for entry in reversed(entries) if _is_folder(entry)]
        for entry in entries:
            if _is_file(entry) and (not entry.is_symlink() or os.path.realpath(entry.path).startswith(f"{real}/")):
                yield os.path.join(parent, entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself, for example
        return False


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _status(path: Path) -> tuple[int, int, int] | None:
    """The values that change with a file: size, time and inode number; None if it is no longer a file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None
