"""BucketStore: an object store in an S3 bucket, or in any store with the same protocol, through obstore.

Settings come from the environment variables of AWS's own tools: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; without a key, the machine's role is used. Plain
HTTP is used on this machine only, unless AWS_ALLOW_HTTP is true. Machines of a job ask for credentials at an
endpoint of their own (trainers.objects.credentials).

Requests are repeated here and not by obstore: a conditional put whose first answer was lost finds its own object when
it is repeated. It is then read back and compared before that counts as a conflict. A conflict on the first try is one.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import urlsplit

from trainers.errors import ObjectStoreError, StoreDenied, StoreNotFound, UnreadableObject
from trainers.objects import refusals
from trainers.objects.base import Bytes, Found, Listed, checked_key, checked_prefix, is_key
from trainers.objects.credentials import Credentials, of_this_machine
from trainers.objects.retry import Patience

if TYPE_CHECKING:
    from obstore.store import S3Store

_T = TypeVar("_T")

POLL_S = 1.0  # at $0.005 per 1,000 lists (S3, 2026), polling costs $0.018 per hour
PART_BYTES, PARTS_AT_ONCE = 16 << 20, 4  # S3 allows 10,000 parts: 160 GB
_BUCKET = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class BucketStore:
    """ObjectStore of the keys below `prefix` in an S3 bucket."""

    poll_s = POLL_S
    remote = True

    def __init__(self, client: S3Store, bucket: str, prefix: str, patience: Patience) -> None:
        self._client, self._bucket, self._prefix, self._patience = client, bucket, prefix, patience

    @property
    def url(self) -> str:
        """s3://bucket/prefix."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def where(self, key: str) -> str:
        """s3://bucket/prefix/key."""
        return f"{self.url}/{checked_key(key)}"

    def child(self, prefix: str) -> BucketStore:
        """See ObjectStore.child."""
        return BucketStore(self._client, self._bucket, self._full(prefix), self._patience)

    # Reading

    def get(self, key: str, most_bytes: int) -> Found | None:
        """See ObjectStore.get."""
        return self._asked(lambda _again: self._got(key, most_bytes), missing=None)

    def _got(self, key: str, most_bytes: int) -> Found:
        """Raises FileNotFoundError, and the errors of obstore."""
        import obstore

        answer = obstore.get(self._client, self._full(key))
        size_bytes = answer.meta["size"]
        if size_bytes > most_bytes:
            what = f"{self.where(key)} has {size_bytes} bytes; the limit is {most_bytes}"
            raise UnreadableObject(what, hint="move it away")
        return Found(bytes(answer.bytes()), answer.meta["e_tag"] or "")

    def get_range(self, key: str, begin: int, end: int) -> bytes | None:
        """See ObjectStore.get_range."""
        import obstore

        if end <= begin:
            return None if self.head(key) is None else b""

        def request(_again: bool) -> bytes | None:
            return bytes(obstore.get_range(self._client, self._full(key), start=begin, end=end))

        try:
            return self._asked(request, missing=None)
        except refusals.BeyondTheEnd:
            return b""

    def head(self, key: str) -> Listed | None:
        """See ObjectStore.head. The store does not say whether the object or the bucket is missing."""
        import obstore

        def request(_again: bool) -> Listed | None:
            meta = obstore.head(self._client, self._full(key))
            return Listed(key, meta["size"], int(meta["last_modified"].timestamp() * 1000))

        return self._asked(request, missing=None)

    def keys(self, prefix: str = "") -> list[str]:
        """See ObjectStore.keys."""
        return [listed.key for listed in self.list(prefix)]

    def list(self, prefix: str = "") -> list[Listed]:
        """See ObjectStore.list."""
        import obstore

        below = self._below(prefix)
        skipped = len(f"{self._prefix}/") if self._prefix else 0

        def request(_again: bool) -> list[Listed]:
            metas = [meta for batch in obstore.list(self._client, below or None) for meta in batch]
            found = [(meta["path"][skipped:], meta) for meta in metas]
            return [
                Listed(key, meta["size"], int(meta["last_modified"].timestamp() * 1000))
                for key, meta in found
                if is_key(key)
            ]

        return self._asked(request, missing=[])

    # Writing

    def put(self, key: str, data: Bytes) -> None:
        """See ObjectStore.put."""
        import obstore

        def request(_again: bool) -> None:
            obstore.put(self._client, self._full(key), bytes(data), use_multipart=False)

        self._asked(request)

    def put_file(self, key: str, file: BinaryIO) -> None:
        """See ObjectStore.put_file. A file of more than a part is sent in parts, and appears when all have arrived."""
        import obstore

        begin = file.tell()

        def request(_again: bool) -> None:
            file.seek(begin)
            obstore.put(self._client, self._full(key), file, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

        self._asked(request)

    def put_if_absent(self, key: str, data: Bytes) -> bool:
        """See ObjectStore.put_if_absent."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        def request(again: bool) -> bool:
            try:
                obstore.put(self._client, self._full(key), bytes(data), mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                refusals.require_final(error, self.url)
                return again and self._own(key, data) is not None
            return True

        return self._asked(request)

    def put_if_match(self, key: str, data: Bytes, version: str) -> str | None:
        """See ObjectStore.put_if_match."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def request(again: bool) -> str | None:
            try:
                answer = obstore.put(
                    self._client, self._full(key), bytes(data), mode={"e_tag": version}, use_multipart=False
                )
            except (AlreadyExistsError, PreconditionError) as error:
                refusals.require_final(error, self.url)
                own = self._own(key, data) if again else None
                return None if own is None else own.version
            return answer["e_tag"] or ""

        return self._asked(request)

    def copy(self, source: str, target: str) -> bool:
        """See ObjectStore.copy."""
        import obstore

        if source == target:  # S3 refuses it
            return self.head(source) is not None

        def request(_again: bool) -> bool:
            obstore.copy(self._client, self._full(source), self._full(target))
            return True

        return self._asked(request, missing=False)

    def delete(self, *keys: str) -> None:
        """See ObjectStore.delete. One request for a thousand keys."""
        import obstore

        paths = [self._full(key) for key in keys]
        if paths:
            self._asked(lambda _again: obstore.delete(self._client, paths))

    def prepare(self, *prefixes: str) -> None:
        """See ObjectStore.prepare. Writes and deletes an object of a name that is not a key."""
        import obstore

        for prefix in prefixes:
            checked_prefix(prefix)
        probe = f"{self._prefix}/.probe".lstrip("/")
        self._asked(lambda _again: obstore.put(self._client, probe, b"probe", use_multipart=False))
        self._asked(lambda _again: obstore.delete(self._client, [probe]))

    def settle(self, prefix: str) -> None:
        """See ObjectStore.settle. An object that has been written has its name."""
        checked_prefix(prefix)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:  # noqa: ARG002
        """See ObjectStore.sweep. An interrupted put leaves nothing."""
        checked_prefix(prefix)

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{checked_key(key)}".lstrip("/")

    def _below(self, prefix: str) -> str:
        return f"{self._prefix}/{checked_prefix(prefix)}".strip("/")

    def _own(self, key: str, data: Bytes) -> Found | None:
        """The object if its content is `data`: then an earlier try may have written it."""
        try:
            found = self._got(key, len(data))
        except (FileNotFoundError, UnreadableObject):
            return None
        return found if found.data == data else None

    def _asked(self, request: Callable[[bool], _T], **missing: _T) -> _T:
        """The result of `request`, which is repeated if need be; `missing` if the object does not exist."""
        from obstore.exceptions import BaseError

        def once(again: bool) -> _T:
            try:
                return request(again)
            except (BaseError, OSError, ValueError) as error:
                if isinstance(error, FileNotFoundError) and missing and not refusals.of_bucket(error):
                    return missing["missing"]
                raise refusals.named(error, self.url) from error

        return self._patience.repeat(once)


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """The parts of s3://bucket/prefix. Raises StoreNotFound."""
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment or not (prefix == "" or is_key(prefix)):
        raise StoreNotFound(f"{url} is not the URL of a bucket", hint="write it like this: s3://bucket/prefix")
    return parts.netloc, prefix


def open_bucket(url: str, patience: Patience | None = None, credentials: Credentials | None = None) -> BucketStore:
    """The store of an URL s3://bucket/prefix; `credentials` are asked for when they are needed, instead of those of the
    environment. Raises ObjectStoreError; sends no request."""
    bucket, prefix = bucket_and_prefix(url)
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        raise ObjectStoreError(
            f"{url} needs obstore, which is not installed here", hint="pip install 'tradewind[storage]'"
        ) from error
    patience = patience or Patience()
    try:
        client = S3Store(
            bucket,
            client_options={
                "allow_http": _plain_http_allowed(url),
                "connect_timeout": timedelta(seconds=patience.connect_s),
                "timeout": timedelta(seconds=patience.request_s),
            },
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=patience.request_s)},
            credential_provider=credentials or of_this_machine(),
        )
    except (BaseError, ValueError) as error:
        raise refusals.named(error, url) from error
    return BucketStore(client, bucket, prefix, patience)


def _plain_http_allowed(url: str) -> bool:
    """Raises StoreDenied if the endpoint is another machine, without TLS, and that was not allowed explicitly."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    parts = urlsplit(endpoint)
    if parts.scheme != "http":
        return False
    if os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true") or _is_here(parts.hostname or ""):
        return True
    raise StoreDenied(
        f"{url}: the endpoint {endpoint} is another machine, without encryption",
        hint="use https://, or set AWS_ALLOW_HTTP=true if the network is yours",
    )


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
