"""BucketStore: an object store in a bucket of a cloud, or of any store with the same protocol, through obstore.

Requests are repeated here and not by obstore: if the first answer to a conditional put is lost, the repeated put finds
its own object. That object is read and compared before it counts as a conflict. A conflict on the first try is real.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from trainers.errors import ObjectStoreError, UnreadableObject
from trainers.objects import refusals
from trainers.objects.base import Bytes, Found, Listed, checked_key, checked_prefix, is_key
from trainers.objects.clients import Clients
from trainers.objects.credentials import Credentials
from trainers.objects.retry import Patience
from trainers.objects.services import Place, place_of

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion

_T = TypeVar("_T")

POLL_S = 1.0  # at $0.005 per 1,000 lists (S3, 2026), polling costs $0.018 per hour
PART_BYTES, PARTS_AT_ONCE = 16 << 20, 4  # S3 allows 10,000 parts: 160 GB
DELETES_AT_ONCE = 16  # if one request deletes one object


class BucketStore:
    """The ObjectStore of one place."""

    poll_s = POLL_S
    remote = True

    def __init__(self, clients: Clients, place: Place, patience: Patience) -> None:
        self._clients, self._place, self._patience = clients, place, patience

    @property
    def url(self) -> str:
        """scheme://bucket/prefix."""
        return self._place.url

    def where(self, key: str) -> str:
        """scheme://bucket/prefix/key."""
        return f"{self.url}/{checked_key(key)}"

    def child(self, prefix: str) -> BucketStore:
        """See ObjectStore.child."""
        return BucketStore(self._clients, replace(self._place, prefix=self._full(prefix)), self._patience)

    # Reading

    def get(self, key: str, most_bytes: int) -> Found | None:
        """See ObjectStore.get."""
        return self._asked(lambda _again: self._got(key, most_bytes), missing=None)

    def _got(self, key: str, most_bytes: int) -> Found:
        """Raises FileNotFoundError, and the errors of obstore."""
        import obstore

        path = self._full(key)
        answer = obstore.get(self._clients.of(path), path)
        size_bytes = answer.meta["size"]
        if size_bytes > most_bytes:
            what = f"{self.where(key)} has {size_bytes} bytes; the limit is {most_bytes}"
            raise UnreadableObject(what, hint="move it away")
        return Found(bytes(answer.bytes()), self._version(answer.meta))

    def get_range(self, key: str, begin: int, end: int) -> bytes | None:
        """See ObjectStore.get_range."""
        import obstore

        if end <= begin:
            return None if self.head(key) is None else b""
        path = self._full(key)

        def request(_again: bool) -> bytes | None:
            return bytes(obstore.get_range(self._clients.of(path), path, start=begin, end=end))

        try:
            return self._asked(request, missing=None)
        except refusals.BeyondTheEnd:
            return b""

    def head(self, key: str) -> Listed | None:
        """See ObjectStore.head. The store does not say whether the object or the bucket is missing."""
        import obstore

        path = self._full(key)

        def request(_again: bool) -> Listed | None:
            return _listed(key, obstore.head(self._clients.of(path), path))

        return self._asked(request, missing=None)

    def keys(self, prefix: str = "") -> list[str]:
        """See ObjectStore.keys."""
        return [listed.key for listed in self.list(prefix)]

    def list(self, prefix: str = "") -> list[Listed]:
        """See ObjectStore.list."""
        below = self._below(prefix)
        skipped = len(f"{self._place.prefix}/") if self._place.prefix else 0

        def request(_again: bool) -> list[Listed]:
            found = [(meta["path"][skipped:], meta) for meta in self._clients.listed(below)]
            return [_listed(key, meta) for key, meta in found if is_key(key)]

        return self._asked(request, missing=[])

    # Writing

    def put(self, key: str, data: Bytes) -> None:
        """See ObjectStore.put."""
        import obstore

        path = self._full(key)

        def request(_again: bool) -> None:
            obstore.put(self._clients.of(path), path, bytes(data), use_multipart=False)

        self._asked(request)

    def put_file(self, key: str, file: BinaryIO) -> None:
        """See ObjectStore.put_file. A large file is sent in parts, and appears when all have arrived."""
        import obstore

        begin, path = file.tell(), self._full(key)

        def request(_again: bool) -> None:
            file.seek(begin)
            client = self._clients.of(path)
            obstore.put(client, path, file, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

        self._asked(request)

    def put_if_absent(self, key: str, data: Bytes) -> bool:
        """See ObjectStore.put_if_absent."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        path = self._full(key)

        def request(again: bool) -> bool:
            try:
                obstore.put(self._clients.of(path), path, bytes(data), mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                refusals.require_final(error, self._place)
                return again and self._own(key, data) is not None
            return True

        return self._asked(request)

    def put_if_match(self, key: str, data: Bytes, version: str) -> str | None:
        """See ObjectStore.put_if_match."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        path = self._full(key)
        known: UpdateVersion = {"version": version} if self._place.service.by_generation else {"e_tag": version}

        def request(again: bool) -> str | None:
            try:
                answer = obstore.put(self._clients.of(path), path, bytes(data), mode=known, use_multipart=False)
            except (AlreadyExistsError, PreconditionError) as error:
                refusals.require_final(error, self._place)
                own = self._own(key, data) if again else None
                return None if own is None else own.version
            return self._version(answer)

        return self._asked(request)

    def copy(self, source: str, target: str) -> bool:
        """See ObjectStore.copy."""
        import obstore

        if source == target:  # S3 refuses it
            return self.head(source) is not None
        of, to = self._full(source), self._full(target)

        def request(_again: bool) -> bool:
            if self._place.service.copies_at_once:
                obstore.copy(self._clients.of(of), of, to)
            else:
                with SpooledTemporaryFile(PART_BYTES) as file:
                    for piece in obstore.get(self._clients.of(of), of).stream(PART_BYTES):
                        file.write(piece)
                    file.seek(0)
                    obstore.put(self._clients.of(to), to, file, chunk_size=PART_BYTES)
            return True

        return self._asked(request, missing=False)

    def delete(self, *keys: str) -> None:
        """See ObjectStore.delete. One request for a thousand keys, or several at a time."""
        import obstore

        paths = [self._full(key) for key in keys]

        def one(path: str) -> None:
            self._asked(lambda _again: self._clients.delete(path), missing=None)

        if self._place.service.deletes_many and paths:
            self._asked(lambda _again: obstore.delete(self._clients.of(paths[0]), paths))
        elif len(paths) <= 1:
            for path in paths:
                one(path)
        else:
            with ThreadPoolExecutor(DELETES_AT_ONCE, "deletes") as threads:
                list(threads.map(one, paths))

    def prepare(self, *prefixes: str) -> None:
        """See ObjectStore.prepare. Writes and deletes an object with a name that is not a key."""
        import obstore

        for prefix in prefixes:
            checked_prefix(prefix)
        probe = f"{self._place.prefix}/.probe".lstrip("/")
        self._asked(lambda _again: obstore.put(self._clients.of(probe), probe, b"probe", use_multipart=False))
        self._asked(lambda _again: self._clients.delete(probe))

    def settle(self, prefix: str) -> None:
        """See ObjectStore.settle. Nothing to do: the name of a written object is durable."""
        checked_prefix(prefix)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:  # noqa: ARG002
        """See ObjectStore.sweep. Nothing to do: an interrupted put leaves nothing."""
        checked_prefix(prefix)

    def _version(self, of: ObjectMeta | PutResult) -> str:
        return of["version" if self._place.service.by_generation else "e_tag"] or ""

    def _full(self, key: str) -> str:
        return f"{self._place.prefix}/{checked_key(key)}".lstrip("/")

    def _below(self, prefix: str) -> str:
        return f"{self._place.prefix}/{checked_prefix(prefix)}".strip("/")

    def _own(self, key: str, data: Bytes) -> Found | None:
        """The object if its content is `data`, because an earlier try may have written it."""
        try:
            found = self._got(key, len(data))
        except (FileNotFoundError, UnreadableObject):
            return None
        return found if found.data == data else None

    def _asked(self, request: Callable[[bool], _T], **missing: _T) -> _T:
        """The result of `request`, which is repeated if necessary; `missing` if the object does not exist."""
        from obstore.exceptions import BaseError

        def once(again: bool) -> _T:
            try:
                return request(again)
            except (BaseError, OSError, ValueError) as error:
                if isinstance(error, FileNotFoundError) and missing and not refusals.of_bucket(error):
                    return missing["missing"]
                raise refusals.named(error, self._place) from error

        return self._patience.repeat(once)


def _listed(key: str, meta: ObjectMeta) -> Listed:
    """The object's entry, with times in whole seconds: some stores report fractions only in lists."""
    return Listed(key, meta["size"], int(meta["last_modified"].timestamp()) * 1000)


def open_bucket(url: str, patience: Patience | None = None, credentials: Credentials | None = None) -> BucketStore:
    """The store for a bucket's URL. `credentials` are requested when they are needed, and replace those of the
    environment. Raises ObjectStoreError; sends no request."""
    place = place_of(url)
    try:
        import obstore.store  # noqa: F401 - slow, and its absence has its own error
        from obstore.exceptions import BaseError
    except ModuleNotFoundError as error:
        raise ObjectStoreError(
            f"{url} needs obstore, which is not installed", hint="pip install 'tradewind[storage]'"
        ) from error
    patience = patience or Patience()
    options = {
        "client_options": {
            "allow_http": place.service.plain_http(url),
            "connect_timeout": timedelta(seconds=patience.connect_s),
            "timeout": timedelta(seconds=patience.request_s),
        },
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=patience.request_s)},
    }
    try:
        clients = place.service.open(place.bucket, options, credentials)
    except (BaseError, ValueError) as error:
        raise refusals.named(error, place) from error
    return BucketStore(clients, place, patience)
