"""The bucket of an installation on Azure: a container and its storage account.

The PUTs that create them set the account's tag and the container's metadata, which name the installation. A container
may be created in the user's own account, whose rules then stay as they are. While Azure creates an account, its state
says so, and that is queried instead of the operation. Azure deletes blocks of interrupted uploads by itself after a
week, so no life-cycle policy is needed. https://learn.microsoft.com/rest/api/storagerp/storage-accounts/create
https://learn.microsoft.com/rest/api/storageservices/put-block
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from providers.azure import rows
from providers.azure.calls import INSTALL
from providers.azure.codes import TAKEN
from providers.azure.resources import Resources
from providers.azure.session import ONCE, Connections, error_code, to_provider_error
from providers.azure.settings import Settings
from providers.bucket import AT_MOST, Bucket, Contents, not_empty, not_ours, taken
from providers.errors import AuthError, UnavailableError

MARK = "tradewind_install"
"""INSTALL as a metadata name: these must be identifiers."""
_VERSION = "2023-05-01"
_ACCOUNT = {"isHnsEnabled": True, "allowBlobPublicAccess": False, "minimumTlsVersion": "TLS1_2"}
_OFF = {"enabled": False}
_ELSEWHERE = ("fileServices/default/shares", "queueServices/default/queues", "tableServices/default/tables")

_Row = Mapping[str, Any]


class Buckets:
    """Names are `account/container`. Methods raise azure.core's exceptions and ProviderErrors."""

    def __init__(self, settings: Settings, connections: Connections, resources: Resources) -> None:
        self._settings, self._connections, self._resources = settings, connections, resources

    def bucket(self, install: str, name: str) -> Bucket | None:
        """See MakesBuckets."""
        account = self.account(name)
        container = None if account is None else self._container(account, name)
        if account is None or container is None:
            return None
        own = _made_for(container) == install
        missing = tuple(what for what, _ in self._steps(account, install))
        return Bucket(rows.PROVIDER, f"az://{name.partition('/')[2]}", rows.region_of(account), own, missing)

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        account = self.account(name)
        if account is None:
            self._make_account(install, name, region)
            progress(f"storage account {name.partition('/')[0]} is being created in {region}")
            account = self.account(name)
        if account is None or account["properties"].get("provisioningState") != "Succeeded":
            raise UnavailableError(f"Azure is still creating the storage account of {_shown(name)}")
        for what, put in self._steps(account, install):
            put()
            progress(f"storage account {account['name']}: {what} was set")
        if self._container(account, name) is None:
            properties = {"publicAccess": "None", "metadata": {MARK: install}}
            path = _path(account, name)
            self._connections.send("PUT", path, _VERSION, {"properties": properties}, **ONCE)
            progress(f"container {_shown(name)} was made in {rows.region_of(account)}")

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets. Also removes the account if it was made for the installation and holds nothing else."""
        account = self.account(name)
        if account is None:
            return
        if (container := self._container(account, name)) is not None:
            of, _, what = name.partition("/")
            command = f"az storage container delete --name {what} --account-name {of} --auth-mode login"
            if _made_for(container) != install:
                progress(not_ours(_shown(name), command))
                return
            if (holds := self._contents(account, name)) is not None:
                progress(not_empty(_shown(name), holds, command))
                return
            self._resources.remove(_path(account, name), _VERSION, f"the container {_shown(name)}")
            progress(f"container {_shown(name)} was removed")
        if rows.tags_of(account).get(INSTALL) == install:
            self._remove_account(account, progress)

    def account(self, name: str) -> _Row | None:
        """The account, in any resource group of the subscription."""
        wanted = name.partition("/")[0]
        path = f"/subscriptions/{self._settings.subscription}/providers/Microsoft.Storage/storageAccounts"
        return next((row for row in self._resources.listed(path, _VERSION) if row["name"] == wanted), None)

    # --- for the methods above ---

    def _container(self, account: _Row, name: str) -> _Row | None:
        found: _Row | None = self._resources.got(_path(account, name), _VERSION)
        return found

    def _make_account(self, install: str, name: str, region: str) -> None:
        account = name.partition("/")[0]
        body = {
            "location": region,
            "tags": {INSTALL: install},
            "kind": "StorageV2",
            "sku": {"name": "Standard_LRS"},
            "properties": {**_ACCOUNT, "supportsHttpsTrafficOnly": True},
        }
        path = f"{self._settings.group}/providers/Microsoft.Storage/storageAccounts/{account}"
        try:
            self._connections.send("PUT", path, _VERSION, body, **ONCE)
        except Exception as error:
            if error_code(error) in TAKEN:
                raise taken(account, "AZURE_STORAGE_ACCOUNT_NAME") from error
            raise

    def _steps(self, account: _Row, install: str) -> Iterator[tuple[str, Callable[[], None]]]:
        """What an account made by Tradewind lacks, and the call that sets it."""
        if rows.tags_of(account).get(INSTALL) != install:
            return
        path, properties = str(account["id"]), account["properties"]
        if any(properties.get(key) != value for key, value in _ACCOUNT.items() if key != "isHnsEnabled"):
            change = {key: value for key, value in _ACCOUNT.items() if key != "isHnsEnabled"}
            yield "access by TLS 1.2 only and no public access", lambda: self._patch(path, change)
        service = f"{path}/blobServices/default"
        kept = self._resources.got(service, _VERSION)["properties"]
        wrong = {name: _OFF for name in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy") if _on(kept, name)}
        if kept.get("isVersioningEnabled"):
            wrong["isVersioningEnabled"] = False  # type: ignore[assignment]
        if wrong:
            body = {"properties": {**kept, **wrong}}
            yield "immediate deletion without versions", lambda: self._resources.put(service, _VERSION, body)

    def _patch(self, path: str, properties: _Row) -> None:
        self._connections.send("PATCH", path, _VERSION, {"properties": properties}, **ONCE)

    def _contents(self, account: _Row, name: str) -> Contents | str | None:
        """What a container holds besides folders; None for nothing. ARM does not report it, so the store itself is
        queried."""
        from azure.storage.filedatalake import FileSystemClient

        address, container = account["properties"]["primaryEndpoints"]["dfs"], name.partition("/")[2]
        options = {"connection_verify": self._connections.ca_file or True, "retry_total": 0}
        credential = self._connections.credential
        with FileSystemClient(address, container, credential=credential, **options) as store:
            try:
                pages = store.get_paths(recursive=True, max_results=AT_MOST).by_page()
                files = [each.content_length or 0 for each in next(pages, []) if not each.is_directory]
            except Exception as error:
                if getattr(error, "error_code", "") == "FilesystemNotFound":  # other 404s say nothing of its files
                    return None
                if isinstance(to_provider_error(error), AuthError):
                    return "objects that this login may not list (listing needs the role Storage Blob Data Reader)"
                raise
            more = bool(pages.continuation_token)
        return Contents(len(files), sum(files), more) if files or more else None

    def _remove_account(self, account: _Row, progress: Callable[[str], None]) -> None:
        path, name = str(account["id"]), account["name"]
        lists = ("blobServices/default/containers", *_ELSEWHERE)
        left = [row["name"] for each in lists for row in self._resources.listed(f"{path}/{each}", _VERSION)]
        if left:
            command = f"az storage account delete --name {name} --resource-group {path.split('/')[4]}"
            progress(not_empty(f"storage account {name}", ", ".join(left), command))
            return
        self._resources.remove(path, _VERSION, f"the storage account {name}")
        progress(f"storage account {name} was removed")


def _path(account: _Row, name: str) -> str:
    return f"{account['id']}/blobServices/default/containers/{name.partition('/')[2]}"


def _made_for(container: _Row) -> str:
    """The installation that a container was made for; "" for none."""
    return str((container["properties"].get("metadata") or {}).get(MARK, ""))


def _on(properties: _Row, policy: str) -> bool:
    return bool((properties.get(policy) or {}).get("enabled"))


def _shown(name: str) -> str:
    account, _, container = name.partition("/")
    return f"az://{container} of the storage account {account}"
