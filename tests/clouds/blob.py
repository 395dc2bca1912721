"""Azure Blob Storage on loopback, as far as obstore goes: block blobs and their ETags, conditions, ranges, pages of
lists, blocks and lists of blocks, batches of deletions.

Requests carry a shared key; its signature is checked. Conditions are checked and carried out as one. What was
deleted is listed if the account keeps it. Not modelled: versions of blobs that were replaced, snapshots, leases, tiers,
access lists.
https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-rest-api
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.clouds.gcs import ranged
from tests.clouds.s3 import refusal
from tests.clouds.server import LoopbackServer, Request, Response

ACCOUNT, REFUSED_KEY = "oursaccount", base64.b64encode(b"another key").decode()
BATCH = 256  # deletions of one request at most
_SIGNED = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)


@dataclass(frozen=True)
class Kept:
    """One blob."""

    data: bytes
    tag: str
    at: datetime

    def headers(self) -> dict[str, str]:
        return {"ETag": self.tag, "Last-Modified": _stamp(self.at), "x-ms-blob-type": "BlockBlob"}


class Blob:
    """An account with one new container, in pages of `page` blobs."""

    def __init__(self, page: int = 5000) -> None:
        self.container = f"container-{secrets.token_hex(6)}"
        self.key = base64.b64encode(secrets.token_bytes(64)).decode()
        self.blobs: dict[str, Kept] = {}
        self.blocks: dict[str, dict[str, bytes]] = {}
        self.page = page
        self.soft_days, self.versioned = 0, False
        self.removed: list[tuple[str, Kept]] = []
        self._tag = 0x8DC000000000000
        self._one_at_a_time = threading.Lock()

    def __call__(self, request: Request) -> Response:
        """What Blob Storage answers."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        container, _, path = request.path.lstrip("/").partition("/")
        key = unquote(path)
        refused = self.refusal(request, headers, key)
        if refused is not None:
            return refused
        if container != self.container:
            return refusal(404, "ContainerNotFound", "The specified container does not exist.")
        if request.query.get("comp") == "batch":
            return self._batch(request, headers)
        with self._one_at_a_time:
            if not key:
                return self._list(request.query)
            if request.method == "PUT":
                return self._put(request, headers, key)
            return self._of(request.method, headers, key)

    def refusal(self, request: Request, headers: dict[str, str], key: str) -> Response | None:
        """Why this may not be asked; None if it may."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        account, _, signature = given.partition(":")
        if scheme != "SharedKey" or account != ACCOUNT:
            return refusal(401, "NoAuthenticationInformation", "The request carries no credentials.")
        if not hmac.compare_digest(signature, shared_key(request, headers, self.key)):
            return refusal(403, "AuthenticationFailed", "Server failed to authenticate the request.")
        return None

    def _put(self, request: Request, headers: dict[str, str], key: str) -> Response:
        kept, comp = self.blobs.get(key), request.query.get("comp")
        if comp == "block":
            self.blocks.setdefault(key, {})[request.query["blockid"]] = request.body
            return Response(201)
        if headers.get("if-none-match") == "*" and kept is not None:
            return refusal(409, "BlobAlreadyExists", "The specified blob already exists.")
        if "if-match" in headers and (kept is None or headers["if-match"] != kept.tag):
            return refusal(
                412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met."
            )
        data = request.body
        if comp == "blocklist":
            sent = self.blocks.pop(key, {})
            wanted = [each.text or "" for each in ElementTree.fromstring(request.body)]
            if any(name not in sent for name in wanted):
                return refusal(400, "InvalidBlockList", "The specified block list is invalid.")
            data = b"".join(sent[name] for name in wanted)
        elif headers.get("x-ms-blob-type") != "BlockBlob" or "x-ms-copy-source" in headers:
            return refusal(400, "MissingRequiredHeader", "An HTTP header that's mandatory is not specified.")
        self._tag += 1
        self.blobs[key] = Kept(data, f'"{self._tag:#X}"', datetime.now(UTC))  # noqa: TID251
        return Response(201, b"", "application/xml", self.blobs[key].headers())

    def _of(self, method: str, headers: dict[str, str], key: str) -> Response:
        kept = self.blobs.get(key)
        if kept is None:
            return refusal(404, "BlobNotFound", "The specified blob does not exist.")
        if method == "DELETE":
            self.removed.append((key, self.blobs.pop(key)))
            return Response(202)
        return ranged(kept.data, headers.get("range"), kept.headers())

    def _batch(self, request: Request, headers: dict[str, str]) -> Response:
        """Deletions, each of which is a request of its own:
        https://learn.microsoft.com/en-us/rest/api/storageservices/blob-batch."""
        boundary = headers["content-type"].partition("boundary=")[2]
        asked = re.findall(r"\r\n\r\n(DELETE) /(\S+) HTTP/1\.1\r\n((?:[^\r\n]+\r\n)*)\r\n", request.body.decode())
        if len(asked) != request.body.count(f"--{boundary}\r\n".encode()) or len(asked) > BATCH:
            return refusal(400, "InvalidInput", "One of the request inputs is not valid.")
        answers = []
        for number, (method, path, lines) in enumerate(asked):
            own = dict(line.partition(": ")[::2] for line in lines.splitlines())
            done = self(Request(method, f"/{path}", {}, own, b""))
            answers.append(
                f"--answers\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                f"HTTP/1.1 {done.status} Done\r\nx-ms-version: 2023-11-03\r\n\r\n\r\n"
            )
        body = "".join([*answers, "--answers--\r\n"]).encode()
        return Response(202, body, "multipart/mixed; boundary=answers")

    def _list(self, query: dict[str, str]) -> Response:
        prefix, after = query.get("prefix", ""), query.get("marker", "")
        delimiter = query.get("delimiter", "")
        names = {_level(key, prefix, delimiter) for key in self.blobs if key.startswith(prefix)}
        found = sorted(name for name in names if name > after)
        shown, more = found[: self.page], len(found) > self.page
        rows = "".join(
            f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
            for name in shown
            if delimiter and name.endswith(delimiter)
        )
        rows += "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{_stamp(kept.at)}</Last-Modified>"
            f"<Etag>{kept.tag.strip(chr(34))}</Etag><Content-Length>{len(kept.data)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for key, kept in ((key, self.blobs[key]) for key in shown if key in self.blobs)
        )
        rows += self._removed(prefix, query.get("include", "").split(","))
        marker = f"<NextMarker>{escape(shown[-1])}</NextMarker>" if more else "<NextMarker />"
        body = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{self.container}">'
            f"<Prefix>{escape(prefix)}</Prefix><Blobs>{rows}</Blobs>{marker}</EnumerationResults>"
        )
        return Response(200, body.encode(), "application/xml")

    def _removed(self, prefix: str, include: list[str]) -> str:
        """The rows of what was deleted: as earlier versions if the account keeps them, else as deleted blobs."""
        if not (self.versioned and "versions" in include) and not (self.soft_days and "deleted" in include):
            return ""
        days = f"<RemainingRetentionDays>{self.soft_days}</RemainingRetentionDays>"
        return "".join(
            f"<Blob><Name>{escape(key)}</Name>"
            + (
                f"<VersionId>{kept.at:%Y-%m-%dT%H:%M:%S.%f}0Z</VersionId>"
                if self.versioned
                else "<Deleted>true</Deleted>"
            )
            + f"<Properties><Last-Modified>{_stamp(kept.at)}</Last-Modified><Etag>{kept.tag.strip(chr(34))}</Etag>"
            + (f"{'' if self.versioned else days}</Properties></Blob>")
            for key, kept in self.removed
            if key.startswith(prefix)
        )


def _level(key: str, prefix: str, delimiter: str) -> str:
    """What a list names for a blob: itself, or the folder in which it is below `prefix`."""
    if not delimiter or delimiter not in key[len(prefix) :]:
        return key
    return key[: key.index(delimiter, len(prefix)) + 1]


def shared_key(request: Request, headers: Mapping[str, str], key: str) -> str:
    """The signature of a request:
    https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key."""
    given = {name: headers.get(name, "") for name in _SIGNED}
    given["content-length"] = "" if given["content-length"] == "0" else given["content-length"]
    own = sorted(name for name in headers if name.startswith("x-ms-"))
    lines = [request.method, *given.values(), *(f"{name}:{headers[name].strip()}" for name in own)]
    lines.append(f"/{ACCOUNT}{request.path}")
    lines += [f"{name.lower()}:{request.query[name]}" for name in sorted(request.query)]
    digest = hmac.new(base64.b64decode(key), "\n".join(lines).encode(), sha256).digest()
    return base64.b64encode(digest).decode()


def _stamp(at: datetime) -> str:
    return at.strftime("%a, %d %b %Y %H:%M:%S GMT")


def environment(server: LoopbackServer, key: str) -> dict[str, str]:
    """The environment variables of a client of that server."""
    return {
        "AZURE_STORAGE_ENDPOINT": server.url,
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": key,
    }
