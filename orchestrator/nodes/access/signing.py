"""Signing: AWS signature version 4 for single requests, in query strings and in headers.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from urllib.parse import quote, urlsplit

from orchestrator.errors import SiteError
from providers.clock import SystemClock

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key for the store; `token` belongs to a temporary key."""

    key_id: str
    secret: str
    token: str | None = None

    def variables(self) -> dict[str, str]:
        """The credentials as the environment variables of AWS's tools."""
        found = {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": self.secret}
        return found if self.token is None else {**found, "AWS_SESSION_TOKEN": self.token}


@dataclass(frozen=True, slots=True)
class Place:
    """The address of S3: `endpoint` without a path, and its region."""

    endpoint: str
    region: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Place:
        """The place that AWS's variables name."""
        region = region_of(environ)
        own = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
        return cls(own.rstrip("/") or f"https://s3.{region}.{domain(region)}", region)


def utc_now() -> datetime:
    """The time with which requests are signed: the store compares it with its own clock."""
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


def region_of(environ: Mapping[str, str]) -> str:
    """The region that AWS's variables name."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def domain(region: str) -> str:
    """The domain of AWS's services in a region."""
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def own_credentials(environ: Mapping[str, str] = os.environ) -> Credentials:
    """The credentials of this process: from the environment, otherwise from any place where boto3 finds them. Raises
    SiteError."""
    key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if key_id and secret:
        return Credentials(key_id, secret, environ.get("AWS_SESSION_TOKEN") or None)
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise SiteError(
            "the credentials of the control plane are not in its environment",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install tradewind[aws], which finds profiles and "
            "roles",
        ) from error
    found = boto3.Session().get_credentials()
    if found is None:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"
        raise SiteError("the control plane has no credentials for the bucket", hint=hint)
    frozen = found.get_frozen_credentials()
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token or None)


class Presigner:
    """Makes URLs with which any holder can send one kind of request until they expire. They share everything but the
    path and two parameters, so many URLs take little space. Implements orchestrator.nodes.access.grants.Signer.
    """

    headers: Mapping[str, str] = MappingProxyType({})
    once: Mapping[str, str] = MappingProxyType({"If-None-Match": "*"})

    def __init__(self, credentials: Credentials, place: Place, at: datetime, expires_s: int) -> None:
        """`at` is in UTC."""
        self._secret, self._place, self.endpoint = credentials.secret, place, place.endpoint
        self._at = at.strftime("%Y%m%dT%H%M%SZ")
        self._scope = f"{self._at[:8]}/{place.region}/s3/aws4_request"
        parameters = {
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{credentials.key_id}/{self._scope}",
            "X-Amz-Date": self._at,
            "X-Amz-Expires": str(expires_s),
        }
        if credentials.token is not None:
            parameters["X-Amz-Security-Token"] = credentials.token
        self.query = _query(parameters)

    def suffix(self, method: str, path: str, *, if_absent: bool = False, of: str = "") -> str:
        """See Signer.suffix. `of`: the configuration of a bucket to request, such as `versioning`."""
        headers = {"host": urlsplit(self._place.endpoint).netloc}
        if if_absent:
            headers["if-none-match"] = "*"
        configuration = f"&{of}=" if of else ""
        query = f"{self.query}&X-Amz-SignedHeaders={quote(';'.join(headers), safe='')}{configuration}"
        wanted = _canonical(method, path, query, headers, _UNSIGNED)
        signature = _signature(self._secret, self._at, self._scope, self._place.region, "s3", wanted)
        signed = f"X-Amz-SignedHeaders={quote(';'.join(headers), safe='')}{configuration}"
        return f"{signed}&X-Amz-Signature={signature}"

    def url(self, method: str, path: str, *, of: str = "") -> str:
        """The whole URL of a quoted path."""
        return f"{self.endpoint}{path}?{self.query}&{self.suffix(method, path, of=of)}"


def signed_headers(
    credentials: Credentials, place: Place, service: str, body: bytes, content_type: str, at: datetime
) -> dict[str, str]:
    """The headers of a signed POST of `body` to "/". `at` is in UTC."""
    when = at.strftime("%Y%m%dT%H%M%SZ")
    headers = {"content-type": content_type, "host": urlsplit(place.endpoint).netloc, "x-amz-date": when}
    if credentials.token is not None:
        headers["x-amz-security-token"] = credentials.token
    scope = f"{when[:8]}/{place.region}/{service}/aws4_request"
    wanted = _canonical("POST", "/", "", headers, sha256(body).hexdigest())
    signature = _signature(credentials.secret, when, scope, place.region, service, wanted)
    names = ";".join(sorted(headers))
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def quoted(path: str) -> str:
    """A path in the form of signatures and URLs."""
    return quote(path, safe="/-_.~")


def _query(parameters: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='')}={quote(parameters[name], safe='')}" for name in sorted(parameters))


def _canonical(method: str, path: str, query: str, headers: Mapping[str, str], payload: str) -> str:
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    return f"{method}\n{path}\n{query}\n{lines}\n{';'.join(sorted(headers))}\n{payload}"


def _signature(secret: str, at: str, scope: str, region: str, service: str, canonical: str) -> str:
    key = f"AWS4{secret}".encode()
    for part in (at[:8], region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), sha256).digest()
    words = f"{_ALGORITHM}\n{at}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    return hmac.new(key, words.encode(), sha256).hexdigest()
