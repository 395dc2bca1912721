"""An S3 service on loopback that lets nobody do more than their credentials allow, with the token service (STS).

It checks every signature with AWS's own library, the expiry of signed URLs and sessions, and, for each request of a
session, the policy with which that was asked for. moto does the rest.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from tests.clouds.s3 import KEY_ID, S3, environment, refusal
from tests.clouds.server import LoopbackServer, Request, Response

_STAMP = "%Y%m%dT%H%M%SZ"
_ABORTS = (
    "<LifecycleConfiguration><Rule><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>"
    "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
    "</Rule></LifecycleConfiguration>"
)
_SESSION = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>
<AccessKeyId>{key_id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{expires_at:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></{action}Result></{action}Response>"""


@dataclass(frozen=True)
class Session:
    """Credentials that were issued for a while."""

    key_id: str
    secret: str
    token: str
    policy: dict
    expires_at: datetime


class GuardedS3(S3):
    """`longest_s` is how long sessions may last at most, `with_sts` whether there are any. `late` is added to the time,
    `read_only` refuses every change, `region` is the only one whose signatures are right. `configurations` are those of
    the bucket, in XML."""

    def __init__(self, *, with_sts: bool = True, longest_s: int = 43_200) -> None:
        super().__init__()
        self.with_sts, self.longest_s, self.read_only, self.region = with_sts, longest_s, False, "us-east-1"
        self.secret = secrets.token_hex(20)
        self.late = timedelta()
        self.configurations = {"lifecycle": _ABORTS, "versioning": "<VersioningConfiguration/>"}
        self.sessions: dict[str, Session] = {}
        self.refused: list[tuple[str, str]] = []  # (action, resource) of sessions

    def now(self) -> datetime:
        return datetime.now(UTC) + self.late  # noqa: TID251

    def __call__(self, request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        signed = _signed(request, headers)
        if signed is None:
            return refusal(403, "AccessDenied", "Anonymous access is forbidden")
        if signed.region != self.region:
            return refusal(400, "AuthorizationHeaderMalformed", f"the region is wrong; expecting '{self.region}'")
        session = self.sessions.get(signed.key_id)
        if session is None and signed.key_id != KEY_ID:
            return refusal(403, "InvalidAccessKeyId", "The key does not exist")
        if not signed.by(self.secret if session is None else session.secret, request, headers):
            return refusal(403, "SignatureDoesNotMatch", "The signature does not match")
        if signed.expires_s is not None and self.now() > signed.at + timedelta(seconds=signed.expires_s):
            return refusal(403, "AccessDenied", "Request has expired")
        if signed.service == "sts":
            return self._issue(request.form) if self.with_sts else refusal(405, "MethodNotAllowed")
        if session is not None:
            given = headers.get("x-amz-security-token") or request.query.get("X-Amz-Security-Token")
            if given != session.token:
                return refusal(403, "InvalidToken", "The token does not belong to the key")
            if self.now() >= session.expires_at:
                return refusal(400, "ExpiredToken", "The provided token has expired")
            for action, bucket, key in asked(request, headers):
                if not allows(session.policy, action, bucket, key):
                    self.refused.append((action, f"{bucket}/{key}"))
                    return refusal(403, "AccessDenied", f"not authorized to perform {action} on {key}")
        if self.read_only and request.method not in ("GET", "HEAD"):
            return refusal(405, "MethodNotAllowed", "The bucket is read-only")
        plain = {name: value for name, value in request.query.items() if not name.startswith("X-Amz-")}
        if request.method == "GET" and plain.keys() & {"lifecycle", "versioning"}:
            kept = self.configurations.get(next(iter(plain)))
            if kept is None:
                return refusal(404, "NoSuchLifecycleConfiguration")
            return Response(200, kept.encode(), "application/xml")
        owned = dict(request.headers)
        if "authorization" not in headers:
            scope = f"{KEY_ID}/20260101/us-east-1/s3/aws4_request"  # moto wants one
            owned["Authorization"] = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
        return super().__call__(Request(request.method, request.path, plain, owned, request.body))

    def lead_to(self, server: LoopbackServer, patch: pytest.MonkeyPatch) -> None:
        """Set the environment of the bucket's owner."""
        for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS"):
            patch.delenv(name, raising=False)
        for name, value in {**environment(server), "AWS_SECRET_ACCESS_KEY": self.secret}.items():
            patch.setenv(name, value)

    def _issue(self, form: dict[str, str]) -> Response:
        seconds, action = int(form["DurationSeconds"]), form["Action"]
        if seconds > self.longest_s:
            return refusal(400, "ValidationError", "The requested DurationSeconds exceeds the MaxSessionDuration")
        session = Session(
            f"ASIA{secrets.token_hex(8).upper()}",
            secrets.token_hex(20),
            secrets.token_urlsafe(200),
            json.loads(form["Policy"]),
            self.now() + timedelta(seconds=seconds),
        )
        self.sessions[session.key_id] = session
        body = _SESSION.format(action=action, **vars(session))
        return Response(200, body.encode(), "text/xml")

    def secrets(self) -> list[str]:
        """What nobody but its owner may ever see: the secrets of all keys, and the session tokens."""
        return [self.secret, *(part for each in self.sessions.values() for part in (each.secret, each.token))]


@dataclass(frozen=True)
class _Signed:
    """How a request is signed."""

    key_id: str
    region: str
    service: str
    at: datetime
    names: list[str]
    signature: str
    expires_s: int | None

    def by(self, secret: str, request: Request, headers: dict[str, str]) -> bool:
        """Whether this is the signature of that secret, according to botocore."""
        from botocore.auth import S3SigV4Auth, SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        auth = (S3SigV4Auth if self.service == "s3" else SigV4Auth)(
            Credentials(self.key_id, secret), self.service, self.region
        )
        query = {name: value for name, value in request.query.items() if name != "X-Amz-Signature"}
        if any(name not in headers for name in self.names):
            return False
        signed = {name: headers[name] for name in self.names}
        if self.expires_s is not None:
            signed["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
        url = f"http://{headers['host']}{request.path}"
        wanted = AWSRequest(request.method, url, signed, request.body, query)
        wanted.context["timestamp"] = self.at.strftime(_STAMP)
        canonical = auth.canonical_request(wanted)
        if self.expires_s is not None:  # botocore counts the header of the payload among those that are signed
            canonical = canonical.replace("x-amz-content-sha256:UNSIGNED-PAYLOAD\n", "")
            canonical = canonical.replace(";x-amz-content-sha256\n", "\n")
        return secrets.compare_digest(auth.signature(auth.string_to_sign(wanted, canonical), wanted), self.signature)


def _signed(request: Request, headers: dict[str, str]) -> _Signed | None:
    found = re.match(
        r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=(\w+)",
        headers.get("authorization", ""),
    )
    if found is not None:
        credential, names, signature = found.groups()
        at, expires_s = headers["x-amz-date"], None
    elif "X-Amz-Signature" in request.query:
        query = request.query
        credential, names, signature = (query[f"X-Amz-{name}"] for name in ("Credential", "SignedHeaders", "Signature"))
        at, expires_s = query["X-Amz-Date"], int(query["X-Amz-Expires"])
    else:
        return None
    key_id, _, region, service, _ = credential.split("/")
    instant = datetime.strptime(at, _STAMP).replace(tzinfo=UTC)
    return _Signed(key_id, region, service, instant, names.split(";"), signature, expires_s)


def asked(request: Request, headers: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """(action, bucket, key, or prefix of a list) of everything that a request does."""
    bucket, _, key = unquote(request.path).strip("/").partition("/")
    if not key and request.method == "POST" and "delete" in request.query:
        for each in ElementTree.fromstring(request.body).iter():
            if each.tag.rpartition("}")[2] == "Key":
                yield "s3:DeleteObject", bucket, each.text or ""
    elif not key:
        yield (
            ("s3:ListBucket" if request.method == "GET" else "s3:CreateBucket"),
            bucket,
            request.query.get("prefix", ""),
        )
    else:
        yield (
            {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "DELETE": "s3:DeleteObject"}.get(
                request.method, "s3:PutObject"
            ),
            bucket,
            key,
        )
        source = unquote(headers.get("x-amz-copy-source", "")).strip("/")
        if source:
            of, _, copied = source.partition("/")
            yield "s3:GetObject", of, copied


def allows(policy: dict, action: str, bucket: str, key: str) -> bool:
    """Whether a policy allows it: only what this project writes in policies is understood, and nothing else allowed."""
    listing = action == "s3:ListBucket"
    resource = f"arn:aws:s3:::{bucket}" + ("" if listing else f"/{key}")
    for statement in policy["Statement"]:
        assert statement.keys() <= {"Effect", "Action", "Resource", "Condition"}
        assert statement["Effect"] == "Allow"
        if action not in _several(statement["Action"]) or not _like(statement["Resource"], resource):
            continue
        condition = statement.get("Condition", {})
        assert not condition or condition.keys() == {"StringLike"}
        if not condition or _like(condition["StringLike"]["s3:prefix"], key):
            return True
    return False


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _like(patterns: str | list[str], text: str) -> bool:
    return any(re.match(_pattern(each), text) for each in _several(patterns))


def _pattern(text: str) -> str:
    """Only * and ? are wildcards, and ${*}, ${?} and ${$} stand for themselves."""
    parts = re.split(r"(\$\{[*?$]\}|\*|\?)", text)
    wild = {"*": ".*", "?": "."}
    done = (wild[part] if part in wild else re.escape(part[2] if part.startswith("${") else part) for part in parts)
    return f"(?s:{''.join(done)})\\Z"
