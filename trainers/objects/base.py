"""ObjectStore: the contract of a store of named bytes, such as a folder or a bucket.

A key is a relative POSIX path: "job/manifests/1-10-1.json". No key may be a folder of another key. A written object is
complete or absent, never partial. Other processes may write and delete at any time; a missing object is not an error.

The errors are ObjectStoreError of trainers.errors and its subclasses. After StoreUnavailable, a write may have
happened, or may even happen later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol, TypeAlias

from trainers.errors import InvalidKey

Bytes: TypeAlias = bytes | bytearray | memoryview

LONGEST_SEGMENT_BYTES = 200  # file names have at most 255; a temporary file adds 14
LONGEST_KEY_BYTES = 800  # S3 allows 1024 with the prefix
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Found:
    """An object's content. `tag`: the store's own name of this version, if it has one."""

    data: bytes
    tag: str = ""

    @property
    def version(self) -> str:
        """For put_if_match. Equal versions have equal content; equal content may have different versions."""
        return self.tag or hashlib.blake2b(self.data, digest_size=16).hexdigest()


class Listed(NamedTuple):
    """An object without its content. `modified_ms`: by the store's clock, which may differ from this machine's."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Objects by key. Every method raises ObjectStoreError, and InvalidKey for an invalid key.

    If put or delete changes an object at the same time as put_if_match, the change of put or delete may be lost.
    """

    @property
    def url(self) -> str:
        """The store's location, for messages and to open it again: a path, or s3://bucket/prefix."""
        ...

    @property
    def poll_s(self) -> float:
        """How long to wait before polling for changes again."""
        ...

    @property
    def remote(self) -> bool:
        """Whether a request takes milliseconds, costs money, and may fail for a while."""
        ...

    def where(self, key: str) -> str:
        """The full path or URL of a key, for messages."""
        ...

    def child(self, prefix: str) -> ObjectStore:
        """The store of all keys below `prefix`, without it; shares connections with this one."""
        ...

    def get(self, key: str, most_bytes: int) -> Found | None:
        """An object; None if it is missing.

        Raises UnreadableObject, without reading it, if it is larger than `most_bytes`.
        """
        ...

    def get_range(self, key: str, begin: int, end: int) -> bytes | None:
        """Bytes `begin` to `end` of an object, fewer if it ends before; None if it is missing."""
        ...

    def head(self, key: str) -> Listed | None:
        """An object's size and time; None if it is missing."""
        ...

    def keys(self, prefix: str = "") -> list[str]:
        """The keys below `prefix`, at any depth, in no particular order. `prefix` is a folder: "a" does not list "ab".
        Invalid names are left out.
        """
        ...

    def list(self, prefix: str = "") -> list[Listed]:
        """The objects of keys(prefix), with their sizes and times. In a folder this takes longer."""
        ...

    def put(self, key: str, data: Bytes) -> None:
        """Write an object; an existing one is replaced."""
        ...

    def put_file(self, key: str, file: BinaryIO) -> None:
        """Write an object from a file of any size, from its current position on, a piece at a time."""
        ...

    def put_if_absent(self, key: str, data: Bytes) -> bool:
        """Write an object that does not exist; False, and no change, if it exists. Of several writers, exactly one gets
        True.

        If the store's first answer was lost, True also means that the object exists with this content: writers that
        compete must write different content.
        """
        ...

    def put_if_match(self, key: str, data: Bytes, version: str) -> str | None:
        """Replace an object that still has this version; returns the new version. None, and no change, if it was
        changed or is missing. Of several writers, at most one succeeds, with the same exception as in put_if_absent.
        """
        ...

    def copy(self, source: str, target: str) -> bool:
        """Write the content of `source` to `target`, replacing it; False if `source` is missing."""
        ...

    def delete(self, *keys: str) -> None:
        """Delete these objects; missing ones are skipped."""
        ...

    def prepare(self, *prefixes: str) -> None:
        """Create what keys below these prefixes need, and check that a key below the last prefix can be written, before
        hours of work on the data.
        """
        ...

    def settle(self, prefix: str) -> None:
        """Make the names of the objects directly below `prefix` survive a power loss. Their content already does."""
        ...

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Delete data that interrupted writes left below `prefix`, for keys for which `dead` is true.

        If unfinished data of a living writer is deleted, it writes it again.
        """
        ...


def checked_key(key: str) -> str:
    """`key`, if it is valid. Raises InvalidKey.

    Segments that begin with a dot are refused: "." and ".." are other folders, and FolderStore uses such names itself.
    """
    if not is_key(key):
        raise InvalidKey(
            f"{key!r} is not a key of an object store",
            hint="use a relative path with /, without empty parts, parts that begin with a dot, and control characters",
        )
    return key


def is_key(key: str) -> bool:
    """Whether `key` is a valid key."""
    if key.isascii() and key.isprintable() and 0 < len(key) <= LONGEST_SEGMENT_BYTES:  # most keys: be quick
        return not (key[0] in "./" or key[-1] == "/" or "//" in key or "/." in key)
    if _CONTROL.search(key) or len(key.encode()) > LONGEST_KEY_BYTES:
        return False
    return all(
        segment and not segment.startswith(".") and len(segment.encode()) <= LONGEST_SEGMENT_BYTES
        for segment in key.split("/")
    )


def checked_prefix(prefix: str) -> str:
    """`prefix`, if it is "" (everything) or a valid key. Raises InvalidKey."""
    return prefix if prefix == "" else checked_key(prefix)
