"""An S3 service on loopback: moto's own answers behind LoopbackServer, so that every S3 client can talk to it.

moto enforces If-None-Match and If-Match when it puts an object, but looks and stores in two steps: two requests at the
same time could both succeed. S3 does them as one, so here one request is answered after the other. moto ignores the
tags with which a bucket is made, and knows one account: here a bucket gets them, and some names belong to others. Not
modelled: redirections to the region of a bucket, former versions that keep a bucket from being removed.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from tests.clouds.server import LoopbackServer, Request, Response

KEY_ID, REFUSED_KEY_ID, SECRET = "AKIAOURS", "AKIAREFUSED", "secret"
_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'


class S3:
    """A cloud with one new bucket. Requests signed by REFUSED_KEY_ID are denied. `others` are names of buckets that
    another account has."""

    def __init__(self) -> None:
        from moto.core.request import Request as MotoRequest
        from moto.s3.responses import S3Response

        self.bucket = f"bucket-{secrets.token_hex(6)}"
        self._request, self._responses = MotoRequest, S3Response
        self._one_at_a_time = threading.Lock()
        self.others: set[str] = set()
        self.ensure_bucket()

    def ensure_bucket(self) -> None:
        """Make the bucket if it is missing: moto keeps one state for a process, which other tests reset."""
        from moto.s3.models import s3_backends

        backend = s3_backends["123456789012"]["aws"]
        if self.bucket not in backend.buckets:
            backend.create_bucket(self.bucket, "us-east-1")

    def __call__(self, request: Request) -> Response:
        """What S3 answers."""
        if f"Credential={REFUSED_KEY_ID}/" in request.headers.get("authorization", ""):
            return refusal(403, "AccessDenied", "Access Denied")
        name, _, key = request.path.strip("/").partition("/")
        makes = request.method == "PUT" and not key and not request.query
        if name in self.others:
            return refusal(409, "BucketAlreadyExists") if makes else refusal(403, "AccessDenied", "Access Denied")
        query = urlencode(request.query, quote_via=quote)
        url = f"http://s3.amazonaws.com{request.path}" + (f"?{query}" if query else "")
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        asked = self._request.from_primitives(
            request.method, url, {**headers, "Host": "s3.amazonaws.com"}, request.body
        )
        asked.environ["RAW_URI"] = request.path + (f"?{query}" if query else "")
        with self._one_at_a_time:
            found = self._responses()
            answer: Any = (found.key_response if key else found.bucket_response)(asked, asked.raw_url, headers)
        status, given, body = answer
        if makes and status == 200:
            self._tag(name, request.body)
        kept = {name: str(value) for name, value in given.items() if name.lower() not in ("date", "content-type")}
        data = body.encode() if isinstance(body, str) else body
        return Response(status, data or b"", _content_type(given), kept)

    def _tag(self, bucket: str, body: bytes) -> None:
        """As the request that made a bucket asked for."""
        from moto.s3.models import s3_backends

        texts = [each.text or "" for each in ElementTree.fromstring(body or b"<x/>").iter() if _is_part_of_tag(each)]
        if texts:
            s3_backends["123456789012"]["aws"].put_bucket_tagging(
                bucket, dict(zip(texts[::2], texts[1::2], strict=True))
            )


def _is_part_of_tag(element: ElementTree.Element) -> bool:
    return element.tag.rpartition("}")[2] in ("Key", "Value")


def refusal(status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """An error as S3 writes it."""
    body = _ERROR.format(code=code, message=message or code).encode()
    return Response(status, body, "application/xml", dict(headers or {}))


def environment(server: LoopbackServer, key_id: str = KEY_ID) -> dict[str, str]:
    """The environment variables of a client of that server."""
    return {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": key_id,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


def _content_type(headers: Mapping[str, Any]) -> str:
    return next((str(value) for name, value in headers.items() if name.lower() == "content-type"), "application/xml")
