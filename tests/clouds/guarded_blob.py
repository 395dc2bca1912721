"""Blob Storage on loopback with a hierarchical namespace, shared access signatures and keys of user delegation.

It checks each signature with Azure's own library, its time, and what it permits of which folder or blob:
https://learn.microsoft.com/en-us/rest/api/storageservices/create-user-delegation-sas. A signature of a folder lists one
level at a time, and carries out no batch.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

from tests.clouds.blob import ACCOUNT, Blob
from tests.clouds.s3 import refusal
from tests.clouds.server import Request, Response

_STAMP = "%Y-%m-%dT%H:%M:%SZ"


class GuardedBlob(Blob):
    """`late` is added to the time; `has_folders` tells whether the namespace is hierarchical, `delegates` whether the
    token of a login (`token`) gets keys; `refused` is what signatures were denied, as (permission, key)."""

    def __init__(self, token: str | None = None) -> None:
        super().__init__()
        self.token = token or secrets.token_hex(20)
        self.late, self.has_folders, self.delegates = timedelta(), True, True
        self.keys: list[Any] = []
        self.refused: list[tuple[str, str]] = []
        self._used: set[str] = set()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.late  # noqa: TID251

    def __call__(self, request: Request) -> Response:
        if request.path.strip("/") or "sig" in request.query:
            return super().__call__(request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        refused = self.refusal(request, headers, "")
        if refused is not None:
            return refused
        if request.query.get("comp") == "userdelegationkey":
            return self._delegate(request.body)
        assert request.query == {"restype": "account", "comp": "properties"}
        reported = {"x-ms-is-hns-enabled": str(self.has_folders).lower(), "x-ms-sku-name": "Standard_LRS"}
        return Response(200, b"", "application/xml", {**reported, "x-ms-account-kind": "StorageV2"})

    def _delegate(self, body: bytes) -> Response:
        if not self.delegates:
            return refusal(403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this.")
        asked = {each.tag: each.text or "" for each in ElementTree.fromstring(body)}
        from azure.storage.filedatalake import UserDelegationKey

        key = UserDelegationKey()
        key.signed_oid, key.signed_tid, key.signed_delegated_user_tid = secrets.token_hex(8), "tenant", None
        key.signed_start, key.signed_expiry = asked["Start"], asked["Expiry"]
        key.signed_service, key.signed_version = "b", "2023-11-03"
        key.value = base64.b64encode(secrets.token_bytes(32)).decode()
        self.keys.append(key)
        tags = {"Oid": key.signed_oid, "Tid": key.signed_tid, "Start": key.signed_start, "Expiry": key.signed_expiry}
        tags |= {"Service": key.signed_service, "Version": key.signed_version}
        parts = "".join(f"<Signed{name}>{value}</Signed{name}>" for name, value in tags.items())
        reported = f'<?xml version="1.0" encoding="utf-8"?><UserDelegationKey>{parts}<Value>{key.value}</Value>'
        return Response(200, f"{reported}</UserDelegationKey>".encode(), "application/xml")

    def refusal(self, request: Request, headers: dict[str, str], key: str) -> Response | None:
        if headers.get("authorization") == f"Bearer {self.token}":
            return None
        if "sig" not in request.query:
            return super().refusal(request, headers, key)
        query = request.query
        place = key or query.get("prefix", "").rstrip("/")
        if not secrets.compare_digest(self._signature(query, place), query["sig"]):
            return refusal(403, "AuthenticationFailed", "Signature did not match.")
        begins, ends = (datetime.strptime(query[each], _STAMP).replace(tzinfo=UTC) for each in ("st", "se"))
        if not begins <= self.now() < ends:
            return refusal(403, "AuthenticationFailed", "Signature not valid in the specified time frame")
        for permission in self._wanted(request, key):
            if not permission & set(query["sp"]):
                self.refused.append(("".join(sorted(permission)), place))
                if "c" in query["sp"] and request.method == "PUT":
                    return refusal(403, "UnauthorizedBlobOverwrite", "not authorized to perform blob overwrites")
                return refusal(403, "AuthorizationPermissionMismatch", "not authorized using this permission")
        self._used.add(query["sig"])
        return None

    def _wanted(self, request: Request, key: str) -> Iterator[set[str]]:
        """Permissions of each of which one is needed."""
        if request.query.get("comp") == "batch":
            yield set()
        elif not key:
            yield {"l"} if request.query.get("delimiter") == "/" or request.query["sr"] == "c" else set()
        elif request.method in ("GET", "HEAD"):
            yield {"r"}
        elif request.method == "DELETE":
            yield {"d"}
        else:
            yield {"w"} if key in self.blobs and request.query.get("comp") != "block" else {"c", "w"}

    def _signature(self, query: dict[str, str], place: str) -> str:
        """What the signature must be, according to Azure's library."""
        from azure.storage import filedatalake as library

        delegated = [each for each in self.keys if each.signed_oid == query.get("skoid")]
        signing = delegated[0] if delegated else self.key
        how = {"start": query["st"], "expiry": query["se"], "permission": query["sp"], "protocol": query["spr"]}
        if query["sr"] == "d":
            folder = "/".join(place.split("/")[: int(query["sdd"])])
            made = library.generate_directory_sas(ACCOUNT, self.container, folder, signing, **how)
        elif query["sr"] == "b":
            above, _, name = place.rpartition("/")
            made = library.generate_file_sas(ACCOUNT, self.container, above, name, signing, **how)
        else:
            made = library.generate_file_system_sas(ACCOUNT, self.container, signing, **how)
        return parse_qs(made)["sig"][0]

    def used(self) -> set[str]:
        """The signatures that did what they may."""
        return set(self._used)

    def secrets(self) -> list[str]:
        """What nobody but its owner may ever see."""
        return [self.key, self.token, *(each.value for each in self.keys)]
