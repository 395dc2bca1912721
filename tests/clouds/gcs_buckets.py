"""Buckets of the loopback Cloud Storage: its JSON API, as far as buckets go, and the sizes of the objects in them.

All projects share the names, so one that somebody else has is refused with 409, and so is one that this project has
itself; only the words differ. A new bucket keeps what is deleted for a week unless asked otherwise. Not modelled: IAM,
ACLs, conditions on the metageneration, locks, and the limit of one change per second and bucket.
https://cloud.google.com/storage/docs/json_api/v1/buckets
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.clouds.server import Request, Response

BELOW = "/storage/v1/b"
WEEK = {"retentionDurationSeconds": "604800"}
_OWN = "Your previous request to create the named bucket succeeded and you already own it."
_OTHERS = "The requested bucket name is not available. The bucket namespace is shared by all users of the system."
_FIELDS = {"name", "location", "labels", "iamConfiguration", "softDeletePolicy", "versioning", "lifecycle"}

Row = dict[str, Any]


class Refused(Exception):
    """An error as Cloud Storage answers it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(reason)
        row = {"message": message, "domain": "global", "reason": reason}
        body = {"error": {"code": status, "message": message, "errors": [row]}}
        self.response = Response(status, json.dumps(body).encode())


class GcsBuckets:
    """`rows` are the buckets by name, as the API tells them; `others` the names that somebody else has; `sizes` returns
    the objects of a bucket. `granted` returns the permissions of the caller; None means all."""

    def __init__(
        self,
        sizes: Callable[[str], Mapping[str, int]] = lambda _: {},
        granted: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.others: set[str] = set()
        self.objects: dict[str, dict[str, int]] = {}
        self.page = 1000
        self._sizes, self._granted = sizes, granted

    def __call__(self, request: Request) -> Response:
        name, _, rest = request.path.removeprefix(BELOW).strip("/").partition("/")
        try:
            answer = self._answer(request, name, rest)
        except Refused as refused:
            return refused.response
        return Response(204) if answer is None else Response(body=json.dumps(answer).encode())

    def _answer(self, request: Request, name: str, rest: str) -> Row | None:
        match (request.method, rest):
            case ("POST", ""):
                self._require("create")
                return self._made(json.loads(request.body))
            case ("GET", ""):
                self._require("get")
                row = self._existing(name, "get")
                asked = request.query.get("fields", "").split(",")
                return {key: value for key, value in row.items() if asked == [""] or key in asked}
            case ("PATCH", ""):
                return self._changed(self._existing(name, "update"), json.loads(request.body))
            case ("DELETE", ""):
                self._require("delete")
                self._existing(name, "delete")
                if self._in(name):
                    raise Refused(409, "conflict", "The bucket you tried to delete is not empty.")
                del self.rows[name]
                return None
            case ("GET", "o"):
                self._existing(name, "list")
                self._require("objects.list")
                return self._listed(name, request.query)
        raise Refused(404, "notFound", f"{request.method} {request.path} is not served here")

    def _made(self, asked: Row) -> Row:
        if asked.keys() - _FIELDS:
            raise Refused(400, "invalid", f"Unknown name: {asked.keys() - _FIELDS}")
        if asked["name"] in self.others:
            raise Refused(409, "conflict", _OTHERS)
        if asked["name"] in self.rows:
            raise Refused(409, "conflict", _OWN)
        row = {"softDeletePolicy": WEEK, **asked, "location": asked["location"].upper(), "locationType": "region"}
        self.rows[row["name"]] = row
        return row

    def _changed(self, row: Row, asked: Row) -> Row:
        self._require("update")
        if "publicAccessPrevention" in asked.get("iamConfiguration", {}):
            self._require("setIamPolicy")
        assert asked.keys() <= _FIELDS - {"name", "location"}
        for key, value in asked.items():
            row[key] = {**row.get(key, {}), **value}
        return row

    def _listed(self, name: str, query: Mapping[str, str]) -> Row:
        most = min(self.page, int(query.get("maxResults", self.page)))
        found = sorted(self._in(name).items())
        items = [{"name": key, "size": str(size)} for key, size in found[:most]]
        return {"items": items, **({"nextPageToken": "more"} if len(found) > most else {})}

    def _in(self, name: str) -> dict[str, int]:
        return {**self.objects.get(name, {}), **self._sizes(name)}

    def _existing(self, name: str, verb: str) -> Row:
        if name in self.others:
            raise _denied(f"storage.{'objects' if verb == 'list' else 'buckets'}.{verb}")
        if name not in self.rows:
            raise Refused(404, "notFound", "The specified bucket does not exist.")
        return self.rows[name]

    def _require(self, what: str) -> None:
        permission = f"storage.{what if '.' in what else f'buckets.{what}'}"
        granted = self._granted()
        if granted is not None and permission not in granted:
            raise _denied(permission)


def _denied(permission: str) -> Refused:
    text = f"ours does not have {permission} access to the Google Cloud Storage bucket. "
    return Refused(403, "forbidden", f"{text}Permission '{permission}' denied on resource (or it may not exist).")
