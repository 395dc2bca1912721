"""Storage accounts and containers of the loopback Azure Resource Manager, and the lists of what is in the containers.

All subscriptions share the names of accounts. A new account is "Creating" for `takes_s`; a container that was deleted
keeps its name for `deleting_s`. A container is deleted with all that it holds, and an account with all its containers.
Not modelled: accounts that are deleted softly, keys, network rules, replication, locks, and immutability.
https://learn.microsoft.com/rest/api/storagerp/
https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/list
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.clouds.azure import error
from tests.clouds.server import Request, Response

_ACCOUNTS = re.compile(r"(/subscriptions/[^/]+)/providers/microsoft\.storage/storageaccounts", re.I)
_ACCOUNT = re.compile(
    r"(/subscriptions/[^/]+/resourcegroups/([^/]+)/providers/microsoft\.storage/storageaccounts/([^/]+))(?:/(.*))?",
    re.I,
)
_CONTAINER = re.compile(r"blobservices/default/containers/([a-z0-9-]+)", re.I)
_NAME = re.compile(r"[a-z0-9]{3,24}")
_SETTINGS = {"isHnsEnabled", "allowBlobPublicAccess", "minimumTlsVersion", "supportsHttpsTrafficOnly"}

Row = dict[str, Any]


class Refused(Exception):
    """An error as Azure answers it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.response = error(code, message, status)


class Storage:
    """`accounts` by name; `others` are names that another subscription has. `services`, `containers`, `shares` and
    `policies` are those of an account, `files` (path -> size) those of a container, `folders` the paths of its folders.
    `url` returns the address of the store; `lists` tells whether the login may list what is in containers."""

    def __init__(self, now_s: Callable[[], float], url: Callable[[], str]) -> None:
        self._now_s, self._url = now_s, url
        self.accounts: dict[str, Row] = {}
        self.others: set[str] = set()
        self.takes_s = self.deleting_s = 0.0
        self.lists = True
        self.services: dict[str, Row] = {}
        self.containers: dict[str, dict[str, Row]] = {}
        self.shares: dict[str, list[str]] = {}
        self.policies: dict[str, Row] = {}
        self.files: dict[str, dict[str, int]] = {}
        self.folders: dict[str, list[str]] = {}
        self._made_s: dict[str, float] = {}
        self._deleted_s: dict[str, float] = {}

    @property
    def ids(self) -> list[str]:
        return [row["id"] for row in self.accounts.values()]

    def __call__(self, method: str, path: str, body: bytes) -> Response | None:
        """ARM's answer; None for what is not served here."""
        for name, row in self.accounts.items():
            if self._now_s() >= self._made_s[name] + self.takes_s:
                row["properties"]["provisioningState"] = "Succeeded"
        try:
            if _ACCOUNTS.fullmatch(path):
                return _json({"value": list(self.accounts.values())})
            found = _ACCOUNT.fullmatch(path)
            if found is None:
                return None
            if not found[4]:
                return self._account(method, found[1], found[3], body)
            return self._inside(method, found[3], found[4], body)
        except Refused as refused:
            return refused.response

    def _account(self, method: str, path: str, name: str, body: bytes) -> Response:
        if method == "PUT":
            return self._made(path, name, json.loads(body))
        if name not in self.accounts:
            if method == "DELETE":
                return Response(204)
            raise Refused(404, "ResourceNotFound", f"The Resource 'storageAccounts/{name}' was not found.")
        if method == "DELETE":
            del self.accounts[name]
            for kept in (self.services, self.containers, self.shares, self.policies):
                kept.pop(name, None)  # type: ignore[attr-defined]
            return Response(200)
        if method == "PATCH":
            asked = json.loads(body)["properties"]
            assert asked.keys() <= _SETTINGS - {"isHnsEnabled"}
            self.accounts[name]["properties"] |= asked
        return _json(self.accounts[name])

    def _made(self, path: str, name: str, body: Row) -> Response:
        if not _NAME.fullmatch(name):
            raise Refused(400, "AccountNameInvalid", f"{name} is not a valid storage account name.")
        if name in self.others:
            raise Refused(409, "StorageAccountAlreadyTaken", f"The storage account named {name} is already taken.")
        before = self.accounts.get(name)
        if before is not None and before["id"].lower() != path.lower():
            text = f"The account {name} is already in another resource group in this subscription."
            raise Refused(409, "StorageAccountInAnotherResourceGroup", text)
        assert body.keys() == {"location", "tags", "kind", "sku", "properties"}
        assert body["properties"].keys() <= _SETTINGS
        ends = {"blob": f"{self._url()}/", "dfs": f"{self._url()}/"}
        about = {**body["properties"], "provisioningState": "Creating", "primaryEndpoints": ends}
        self.accounts[name] = {**body, "id": path, "name": name, "properties": about}
        self._made_s[name] = self._now_s()
        self.services[name] = {"deleteRetentionPolicy": {"enabled": False}, "cors": {"corsRules": []}}
        self.containers[name] = {}
        return Response(202, headers={"Location": f"{self._url()}/asyncoperations/1?monitor=true", "Retry-After": "17"})

    def _inside(self, method: str, account: str, rest: str, body: bytes) -> Response:
        if account not in self.accounts:
            raise Refused(404, "ResourceNotFound", f"The Resource 'storageAccounts/{account}' was not found.")
        if self.accounts[account]["properties"]["provisioningState"] != "Succeeded":
            raise Refused(
                409, "StorageAccountIsNotProvisioned", "The storage account provisioning state must be 'Succeeded'."
            )
        if named := _CONTAINER.fullmatch(rest):
            return self._container(method, account, named[1], body)
        match rest.lower():
            case "blobservices/default":
                if method == "PUT":
                    self.services[account] = json.loads(body)["properties"]
                return _json({"properties": self.services[account]})
            case "blobservices/default/containers":
                return _json({"value": list(self.containers[account].values())})
            case "fileservices/default/shares":
                return _json({"value": [{"name": each} for each in self.shares.get(account, [])]})
            case "queueservices/default/queues" | "tableservices/default/tables":
                return _json({"value": []})
            case "managementpolicies/default" if account in self.policies:
                return _json({"properties": {"policy": self.policies[account]}})
            case "managementpolicies/default":
                raise Refused(404, "ManagementPolicyNotFound", "No ManagementPolicy found for the account.")
        raise Refused(404, "NotFound", f"{rest} is not served")

    def _container(self, method: str, account: str, name: str, body: bytes) -> Response:
        rows = self.containers[account]
        if method == "PUT":
            if self._now_s() < self._deleted_s.get(name, -1e9) + self.deleting_s:
                raise Refused(409, "ContainerBeingDeleted", "The specified container is being deleted.")
            new = name not in rows
            rows[name] = {"name": name, "properties": json.loads(body)["properties"]}
            return _json(rows[name], 201 if new else 200)
        if name not in rows:
            if method == "DELETE":
                return Response(204)
            raise Refused(404, "ContainerNotFound", "The specified container does not exist.")
        if method == "DELETE":
            del rows[name]
            self.files.pop(name, None)
            self._deleted_s[name] = self._now_s()
            return Response(200)
        return _json(rows[name])

    def paths(self, request: Request) -> Response:
        """What the store itself answers: the list of a container."""
        name = request.path.strip("/")
        assert request.query["resource"] == "filesystem"
        assert request.query["recursive"] == "true"
        if not self.lists:
            return _refusal(403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this.")
        if not any(name in rows for rows in self.containers.values()):
            return _refusal(404, "FilesystemNotFound", "The specified filesystem does not exist.")
        most = int(request.query["maxResults"])
        found: list[Row] = [{"name": each, "isDirectory": "true"} for each in self.folders.get(name, [])]
        found += [{"name": path, "contentLength": str(size)} for path, size in self.files.get(name, {}).items()]
        more = {"x-ms-continuation": "more"} if len(found) > most else {}
        stamp = {"lastModified": "Thu, 26 Nov 2026 12:00:00 GMT", "etag": "0x1", "owner": "$superuser"}
        return _json({"paths": [{**stamp, **each} for each in found[:most]]}, 200, more)


def _refusal(status: int, code: str, message: str) -> Response:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return Response(status, body, headers={"x-ms-error-code": code})


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(status, json.dumps(body).encode(), headers=headers or {})
