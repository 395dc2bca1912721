"""Cloud Storage on loopback, as far as the XML API goes that obstore speaks: objects and their generations, conditions,
ranges, pages of lists, multipart uploads.

Each object has a generation that is never used twice. Conditions are checked and carried out as one. Of the JSON API,
only buckets (tests/clouds/gcs_buckets.py). Not modelled: object versions, access lists, and the limit of one write per
second and object.
https://cloud.google.com/storage/docs/xml-api/overview
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import md5
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.clouds.gcs_buckets import BELOW, GcsBuckets
from tests.clouds.s3 import refusal
from tests.clouds.server import LoopbackServer, Request, Response

TOKEN, REFUSED_TOKEN = "ya29.ours", "ya29.refused"


@dataclass(frozen=True)
class Kept:
    """One object."""

    data: bytes
    generation: int
    at: datetime

    @property
    def tag(self) -> str:
        return f'"{md5(self.data, usedforsecurity=False).hexdigest()}"'  # as there: equal content, equal ETag

    def headers(self) -> dict[str, str]:
        return {
            "ETag": self.tag,
            "x-goog-generation": str(self.generation),
            "Last-Modified": self.at.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        }


class Gcs:
    """A cloud with one new bucket, in pages of `page` keys. Requests with another token than TOKEN are denied. The JSON
    API may remove the bucket and make it again."""

    def __init__(self, page: int = 1000) -> None:
        self.bucket = f"bucket_{secrets.token_hex(6)}"
        self.objects: dict[str, Kept] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.page = page
        self.granted: frozenset[str] | None = None
        """The permissions of the token for the JSON API; None: all."""
        self.buckets = GcsBuckets(self._sizes, lambda: self.granted)
        self.tell({})
        self._generation = 1_700_000_000_000_000
        self._one_at_a_time = threading.Lock()

    def __call__(self, request: Request) -> Response:
        """What Cloud Storage answers."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        bucket, _, path = request.path.lstrip("/").partition("/")
        key = unquote(path)
        refused = self.refusal(request, headers, key)
        if refused is not None:
            return refused
        if request.path.startswith(BELOW):
            return self.buckets(request)
        if unquote(bucket) != self.bucket or self.bucket not in self.buckets.rows:
            return refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        with self._one_at_a_time:
            if not key:
                return self._list(request.query)
            if "uploads" in request.query or "uploadId" in request.query:
                return self._upload(request, key)
            if request.method == "PUT":
                return self._put(request, headers, key)
            return self._of(request.method, headers, key)

    def tell(self, metadata: dict[str, object]) -> None:
        """Of the bucket, the JSON API tells this."""
        self.buckets.rows[self.bucket] = {"name": self.bucket, "location": "US", **metadata}

    def _sizes(self, bucket: str) -> dict[str, int]:
        return {key: len(kept.data) for key, kept in self.objects.items()} if bucket == self.bucket else {}

    def refusal(self, request: Request, headers: dict[str, str], key: str) -> Response | None:
        """Why this may not be asked; None if it may."""
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if given == TOKEN:
            return None
        if given == REFUSED_TOKEN:
            return refusal(403, "AccessDenied", "Access denied.")
        return refusal(401, "AuthenticationRequired", "Authentication required.")

    def _put(self, request: Request, headers: dict[str, str], key: str) -> Response:
        data = request.body
        if "x-goog-copy-source" in headers:
            _, _, source = unquote(headers["x-goog-copy-source"]).strip("/").partition("/")
            if source not in self.objects:
                return refusal(404, "NoSuchKey", "The specified key does not exist.")
            data = self.objects[source].data
        expected = headers.get("x-goog-if-generation-match")
        if expected is not None:
            if not expected.isdecimal():
                return refusal(400, "InvalidArgument", "Invalid argument.")
            if int(expected) != (self.objects[key].generation if key in self.objects else 0):
                return refusal(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
        kept = self._keep(key, data)
        body = b"<CopyObjectResult/>" if "x-goog-copy-source" in headers else b""
        return Response(200, body, "application/xml", kept.headers())

    def _keep(self, key: str, data: bytes) -> Kept:
        self._generation += 1
        self.objects[key] = Kept(data, self._generation, datetime.now(UTC))  # noqa: TID251
        return self.objects[key]

    def _of(self, method: str, headers: dict[str, str], key: str) -> Response:
        kept = self.objects.get(key)
        if kept is None:
            return refusal(404, "NoSuchKey", "The specified key does not exist.")
        if method == "DELETE":
            del self.objects[key]
            return Response(204)
        return ranged(kept.data, headers.get("range"), kept.headers())

    def _list(self, query: dict[str, str]) -> Response:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        found = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        shown, more = found[: self.page], len(found) > self.page
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Generation>{kept.generation}</Generation>"
            f"<LastModified>{kept.at:%Y-%m-%dT%H:%M:%S.%f}Z</LastModified><ETag>{escape(kept.tag)}</ETag>"
            f"<Size>{len(kept.data)}</Size></Contents>"
            for key, kept in ((key, self.objects[key]) for key in shown)
        )
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
        body = (
            f"<ListBucketResult><Name>{self.bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(shown)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}"
            "</ListBucketResult>"
        )
        return Response(200, body.encode(), "application/xml")

    def _upload(self, request: Request, key: str) -> Response:
        """A multipart upload: https://cloud.google.com/storage/docs/multipart-uploads."""
        if "uploads" in request.query:
            name = secrets.token_hex(8)
            self.uploads[name] = (key, {})
            body = (
                f"<InitiateMultipartUploadResult><Bucket>{self.bucket}</Bucket><Key>{escape(key)}</Key>"
                f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
            return Response(200, body.encode(), "application/xml")
        name = request.query["uploadId"]
        if self.uploads.get(name, ("", {}))[0] != key:
            return refusal(404, "NoSuchUpload", "The specified upload does not exist.")
        _, parts = self.uploads[name]
        if request.method == "PUT":
            parts[int(request.query["partNumber"])] = request.body
            tag = f'"{md5(request.body, usedforsecurity=False).hexdigest()}"'
            return Response(200, b"", "application/xml", {"ETag": tag})
        del self.uploads[name]
        if request.method == "DELETE":
            return Response(204)
        wanted = [
            int(each.text or "") for each in ElementTree.fromstring(request.body).iter() if _is(each, "PartNumber")
        ]
        if wanted != sorted(set(wanted)) or any(number not in parts for number in wanted):
            return refusal(400, "InvalidPart", "One or more of the specified parts could not be found.")
        kept = self._keep(key, b"".join(parts[number] for number in wanted))
        body = (
            f"<CompleteMultipartUploadResult><Bucket>{self.bucket}</Bucket><Key>{escape(key)}</Key>"
            f"<ETag>{escape(kept.tag)}</ETag></CompleteMultipartUploadResult>"
        )
        return Response(200, body.encode(), "application/xml", {"x-goog-generation": str(kept.generation)})


def _is(element: ElementTree.Element, name: str) -> bool:
    return element.tag.rpartition("}")[2] == name


def ranged(data: bytes, asked: str | None, headers: dict[str, str]) -> Response:
    """An object, or the bytes of `bytes=FIRST-LAST`."""
    if asked is None:
        return Response(200, data, "application/octet-stream", {**headers, "Content-Length": str(len(data))})
    first, _, last = asked.removeprefix("bytes=").partition("-")
    begin, end = int(first), min(int(last) + 1, len(data))
    if begin >= len(data):
        return refusal(416, "InvalidRange", "The requested range cannot be satisfied.")
    span = {"Content-Range": f"bytes {begin}-{end - 1}/{len(data)}", "Content-Length": str(end - begin)}
    return Response(206, data[begin:end], "application/octet-stream", {**headers, **span})


def environment(server: LoopbackServer, token: str = TOKEN) -> dict[str, str]:
    """The environment variables of a client of that server."""
    return {"GOOGLE_BASE_URL": server.url, "GOOGLE_BEARER_TOKEN": token}
