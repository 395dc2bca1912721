"""Grants of Azure Blob Storage: shared access signatures, each for one folder or one blob.

They are signed with a temporary key of a user of the account (user delegation), or with the account's key if the
control plane has it. Folders exist only in accounts with a hierarchical namespace.
https://learn.microsoft.com/en-us/rest/api/storageservices/create-user-delegation-sas
https://learn.microsoft.com/en-us/rest/api/storageservices/get-account-information
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from orchestrator.errors import SiteError
from orchestrator.nodes.access.grants import Issued, NoLimitedAccess, Signer
from orchestrator.nodes.access.scope import Scope

LASTS_S = 43_200
EARLY_S = 900  # signatures begin this far in the past, because clocks differ
ANSWER_S = 10
READ, WRITE = "rl", "racwdl"
KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_HINT = (
    "give the control plane the role Storage Blob Data Contributor on the storage account (not only on a container); "
    "machines.share_credentials lends machines the whole container"
)
_FLAT = (
    "access can be limited to folders only in a storage account with a hierarchical namespace: name another account "
    "(AZURE_STORAGE_ACCOUNT_NAME), which tradewind up --cloud azure creates in this way; or "
    "machines.share_credentials lends machines the whole container"
)


class AzureGrants:
    """Implements Grants."""

    variables = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_ALLOW_HTTP")

    def __init__(
        self, now: Callable[[], datetime], *, role: str | None, share: bool, environ: Mapping[str, str]
    ) -> None:
        if role is not None:
            raise SiteError("Azure's storage has no role that lends access", hint="unset machines.role")
        self._now, self._share, self._environ = now, share, environ
        self._has_folders = False

    def issue(self, scope: Scope, name: str) -> Issued:  # noqa: ARG002
        """See Issuer.issue."""
        signing = self._signing(LASTS_S)
        writes, reads = scope.places()
        if self._share:
            containers = {place.bucket for place in writes}
            return Issued({f"az://{each}": signing.container(each) for each in containers}, LASTS_S)
        if not self._has_folders:
            self._require_folders()
        values = {place.url: signing.folder(place.bucket, place.prefix, READ) for place in reads}
        values |= {place.url: signing.folder(place.bucket, place.prefix, WRITE) for place in writes}
        return Issued(values, LASTS_S)

    def signer(self, scope: Scope, for_s: int) -> Signer:  # noqa: ARG002
        """See Issuer.signer: each of its URLs allows one kind of request for one blob."""
        return BlobSigner(self._endpoint, self._signing(for_s))

    @property
    def _account(self) -> str:
        account = self._environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            raise SiteError("no storage account is named", hint="set AZURE_STORAGE_ACCOUNT_NAME")
        return account

    @property
    def _endpoint(self) -> str:
        own = self._environ.get("AZURE_STORAGE_ENDPOINT") or self._environ.get("AZURE_ENDPOINT")
        return (own or f"https://{self._account}.blob.core.windows.net").rstrip("/")

    @property
    def _key(self) -> str | None:
        return next(filter(None, map(self._environ.get, KEYS)), None)

    def _signing(self, for_s: int) -> Signing:
        """Raises NoLimitedAccess, SiteError."""
        begins, ends = self._now() - timedelta(seconds=EARLY_S), self._now() + timedelta(seconds=for_s)
        key: Any = self._key
        if key is None:
            key = self._asked(lambda service: service.get_user_delegation_key(begins, ends))
        else:
            _require_key(key)
        protocol = "https" if self._endpoint.startswith("https") else "https,http"
        return Signing(self._account, key, begins, ends, protocol)

    def _require_folders(self) -> None:
        """Raises NoLimitedAccess, SiteError."""
        self._has_folders = bool(self._asked(lambda service: service.get_account_information()["is_hns_enabled"]))
        if not self._has_folders:
            why = f"the storage account {self._account} does not support limiting access to folders"
            raise NoLimitedAccess(why, hint=_FLAT)

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        try:
            from azure.core import exceptions
            from azure.core.credentials import AzureNamedKeyCredential
            from azure.identity import CredentialUnavailableError, DefaultAzureCredential
            from azure.storage.blob import BlobServiceClient
        except ModuleNotFoundError as error:
            raise SiteError(
                "lending access to az:// needs azure-storage-file-datalake, which is not installed",
                hint="pip install 'tradewind[azure]'",
            ) from error
        key = self._key
        credential: Any = None if key is None else AzureNamedKeyCredential(self._account, key)
        try:
            with BlobServiceClient(
                self._endpoint,
                credential or DefaultAzureCredential(process_timeout=ANSWER_S),
                connection_timeout=ANSWER_S,
                read_timeout=ANSWER_S,
                retry_total=0,
            ) as service:
                return question(service)
        except (CredentialUnavailableError, exceptions.ClientAuthenticationError) as error:
            raise SiteError(
                f"the control plane has no credentials for the container: {_first(error)}",
                hint="set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or run: az login",
            ) from error
        except exceptions.HttpResponseError as error:
            why = f"{self._endpoint} issues no access limited to a job: {_first(error)}"
            if error.status_code in range(400, 500) and error.status_code not in (408, 429):
                raise NoLimitedAccess(why, hint=_HINT) from error
            raise SiteError(why, hint="Tradewind tries again") from error
        except exceptions.AzureError as error:
            raise SiteError(
                f"{self._endpoint} does not answer: {_first(error)}", hint="Tradewind tries again"
            ) from error
        except (ValueError, TypeError, AttributeError) as error:  # for a missing part of the answer, and for plain HTTP
            what = f"a request to {self._endpoint} for access limited to a job failed: {_first(error)}"
            raise SiteError(what, hint="check AZURE_STORAGE_ENDPOINT; Tradewind tries again") from error


@dataclass(frozen=True, slots=True)
class Signing:
    """Makes signatures that are valid from `begins` to `ends`. `key` is the account's key or a user delegation key."""

    account: str
    key: Any
    begins: datetime
    ends: datetime
    protocol: str

    def folder(self, container: str, folder: str, permission: str) -> str:
        """A signature for everything in a folder."""
        from azure.storage.filedatalake import generate_directory_sas

        return str(generate_directory_sas(self.account, container, folder, self.key, permission, **self._common()))

    def blob(self, container: str, blob: str, permission: str) -> str:
        """A signature for one blob."""
        from azure.storage.filedatalake import generate_file_sas

        folder, _, name = blob.rpartition("/")
        return str(generate_file_sas(self.account, container, folder, name, self.key, permission, **self._common()))

    def container(self, container: str) -> str:
        """A signature for everything in a container."""
        from azure.storage.filedatalake import generate_file_system_sas

        return str(generate_file_system_sas(self.account, container, self.key, WRITE, **self._common()))

    def _common(self) -> dict[str, Any]:
        return {"start": self.begins, "expiry": self.ends, "protocol": self.protocol}


@dataclass(frozen=True, slots=True)
class BlobSigner:
    """Implements Signer."""

    endpoint: str
    signing: Signing
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    once: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"If-None-Match": "*", "x-ms-blob-type": "BlockBlob"})
    )

    def suffix(self, method: str, path: str, *, if_absent: bool = False) -> str:
        """See Signer.suffix."""
        container, _, blob = unquote(path).lstrip("/").partition("/")
        return self.signing.blob(container, blob, "r" if method == "GET" else "c" if if_absent else "w")


def _require_key(key: str) -> None:
    """Raises SiteError if this is not the key of a storage account, without showing it."""
    try:
        base64.b64decode(key, validate=True)
    except ValueError as error:
        raise SiteError(
            "AZURE_STORAGE_ACCOUNT_KEY is not base64", hint="copy the key from the account again"
        ) from error


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
