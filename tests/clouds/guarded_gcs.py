"""Cloud Storage on loopback that lets nobody do more than the boundary of their token allows, with the token service
that issues such tokens (https://cloud.google.com/iam/docs/downscoping-short-lived-credentials).

Only what this project writes in conditions is understood; anything else is an error of the test.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from tests.clouds.gcs import TOKEN, Gcs
from tests.clouds.s3 import refusal
from tests.clouds.server import Request, Response

USER = "inRole:roles/storage.objectUser"
ROLES = {
    "inRole:roles/storage.objectViewer": {"get", "list"},
    "inRole:roles/storage.objectCreator": {"create"},
    USER: {"get", "list", "create", "delete", "abort"},
}
_LIST = r"api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\)"
_PART = re.compile(rf"(resource\.name|{_LIST})\.startsWith\('((?:[^'\\]|\\.)*)'\)")


@dataclass(frozen=True)
class Session:
    """A token that was issued for a while."""

    rules: list[dict[str, Any]]
    expires_at: datetime


class GuardedGcs(Gcs):
    """Tokens that write last for `lasts_s`, those of a first contact for an hour. `late` is added to the time; `issues`
    tells whether there is a token service; `refused` is what sessions were denied, as (permission, key)."""

    def __init__(self, lasts_s: int = 3600) -> None:
        super().__init__()
        self.late, self.issues, self.lasts_s = timedelta(), True, lasts_s
        self._used: set[str] = set()
        self.sessions: dict[str, Session] = {}
        self.refused: list[tuple[str, str]] = []

    def now(self) -> datetime:
        return datetime.now(UTC) + self.late  # noqa: TID251

    def __call__(self, request: Request) -> Response:
        return self._issue(request.form) if request.path == "/v1/token" else super().__call__(request)

    def _issue(self, form: dict[str, str]) -> Response:
        if not self.issues or form["subject_token"] != TOKEN:
            answer = {"error": "invalid_grant", "error_description": "Invalid token or the service is disabled."}
            return Response(400, json.dumps(answer).encode())
        boundary = json.loads(unquote(form["options"]))["accessBoundary"]["accessBoundaryRules"]
        assert 0 < len(boundary) <= 10
        lasts_s = self.lasts_s if USER in str(boundary) else 3600
        token = f"ya29.{secrets.token_urlsafe(1500)}"
        self.sessions[token] = Session(boundary, self.now() + timedelta(seconds=lasts_s))
        reported = {"access_token": token, "expires_in": lasts_s, "token_type": "Bearer"}
        return Response(200, json.dumps(reported).encode())

    def refusal(self, request: Request, headers: dict[str, str], key: str) -> Response | None:
        session = self.sessions.get(headers.get("authorization", "").removeprefix("Bearer "))
        if session is None:
            return super().refusal(request, headers, key)
        if self.now() >= session.expires_at:
            return refusal(401, "AuthenticationRequired", "The token has expired.")
        for permission, name in self._wanted(request, headers, key):
            if not allows(session.rules, self.bucket, permission, name):
                self.refused.append((permission, name))
                return refusal(403, "AccessDenied", f"the caller has no storage.objects.{permission} to {name}")
        self._used.add(headers["authorization"])
        return None

    def _wanted(self, request: Request, headers: dict[str, str], key: str) -> Iterator[tuple[str, str]]:
        """(permission, key, or prefix of a list) of everything that a request does."""
        if not key:
            yield "list", request.query.get("prefix", "")
        elif request.method in ("GET", "HEAD"):
            yield "get", key
            if key not in self.objects:  # only those who may list it learn that there is none
                yield "tell", key
        elif request.method == "DELETE":
            yield ("abort" if "uploadId" in request.query else "delete"), key
        else:
            yield "create", key
            if (
                key in self.objects
                and headers.get("x-goog-if-generation-match") != "0"
                and "uploads" not in request.query
            ):
                yield "delete", key
            source = unquote(headers.get("x-goog-copy-source", "")).strip("/").partition("/")[2]
            if source:
                yield "get", source

    def used(self) -> set[str]:
        """The tokens of sessions that did what they may."""
        return set(self._used)

    def secrets(self) -> list[str]:
        """What nobody but its owner may ever see. Tokens of a first contact are in the user data."""
        lent = [token for token, each in self.sessions.items() if USER in str(each.rules)]
        return [TOKEN, *lent]


def allows(rules: list[dict[str, Any]], bucket: str, permission: str, name: str) -> bool:
    """Whether one of a boundary's rules allows it."""
    for rule in rules:
        assert rule.keys() == {"availableResource", "availablePermissions", "availabilityCondition"}
        assert rule["availableResource"] == f"//storage.googleapis.com/projects/_/buckets/{bucket}"
        granted = set[str]().union(*(ROLES[role] for role in rule["availablePermissions"]))
        if ("list" if permission == "tell" else permission) in granted and _holds(
            rule["availabilityCondition"]["expression"], bucket, permission, name
        ):
            return True
    return False


def _holds(expression: str, bucket: str, permission: str, name: str) -> bool:
    listing = permission == "list"
    resource = f"projects/_/buckets/{bucket}" + ("" if listing else f"/objects/{name}")
    for part in expression.split(" || "):
        found = _PART.fullmatch(part)
        assert found is not None, part
        start = re.sub(r"\\(.)", r"\1", found[2])
        value = resource if found[1] == "resource.name" else (name if listing else "")
        if value.startswith(start):
            return True
    return False
