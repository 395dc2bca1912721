"""Whether an Azure Blob Storage account keeps deleted data, determined from an object that was just deleted.

Soft deletion and versions are settings of the account. The protocol of the store does not report versioning, and
reports soft deletion only with permissions that the store does not need. But a list of blobs, which needs only the
permission to list, can include deleted blobs and earlier versions:
https://learn.microsoft.com/en-us/rest/api/storageservices/list-blobs. Azure deletes parts of interrupted uploads after
a week: https://learn.microsoft.com/en-us/rest/api/storageservices/put-block. Life-cycle policies, which may delete
versions, are only in the management API, so the provider `azure` is asked.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import format_datetime, parsedate_to_datetime
from hashlib import sha256
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from orchestrator.nodes.access.signing import utc_now
from orchestrator.services.doctor.rules import Answer, Rules, ask
from providers.base import DeletesVersions
from providers.errors import ProviderError
from trainers.objects.services import BLOB, Place

VERSION = "2023-11-03"
SCOPE = "https://storage.azure.com/.default"
JUST_NOW_S = 300.0
_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_SIGNATURES = ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN")


def blob_rules(place: Place, azure: object = None) -> Rules:
    """The rules of the account, if an object `.probe` of this place was deleted within JUST_NOW_S. `azure` is the
    provider, if it is enabled."""
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    address = next(filter(None, map(os.environ.get, BLOB.endpoints)), f"https://{account}.blob.core.windows.net")
    query = {
        "comp": "list",
        "include": "deleted,versions",
        "prefix": f"{place.prefix}/.probe".lstrip("/"),
        "restype": "container",
    }
    url = f"{address.rstrip('/')}/{place.bucket}"
    suffix, headers, why = _authorized(account, urlsplit(url).path, query)
    if why:
        return Rules(unchecked=why)
    asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    answer = ask(f"{url}?{asked}{suffix}", headers)
    if not answer.good:
        return Rules(unchecked=f"deleted blobs cannot be listed (status {answer.status})")
    try:
        kept = list(_recent(answer))
        deletes, why = _deletes_versions(place, account, azure) if _versions(kept) else (False, "")
        return Rules(tuple(_costly(account, kept, versions_stay=not deletes)), why)
    except (ElementTree.ParseError, ValueError):
        return Rules(unchecked="the list of deleted blobs is not valid")


def _costly(account: str, kept: list[ElementTree.Element], *, versions_stay: bool) -> Iterator[tuple[str, str]]:
    change = f"az storage account blob-service-properties update --account-name {account}"
    days = [blob.findtext(".//RemainingRetentionDays") for blob in kept if blob.findtext("Deleted") == "true"]
    if days:
        period = f" for {days[0]} days or more" if days[0] else ""
        yield f"the account keeps, and bills, all deleted data{period}", f"{change} --enable-delete-retention false"
    if versions_stay and _versions(kept):
        yield (
            "the account keeps, and bills, versions of all deleted or replaced data",
            f"{change} --enable-versioning false",
        )


def _versions(kept: list[ElementTree.Element]) -> bool:
    return any(blob.findtext("VersionId") for blob in kept)


def _deletes_versions(place: Place, account: str, azure: object) -> tuple[bool, str]:
    """Whether a policy of the account deletes versions; and why this is not known, "" if it is."""
    asked = "a life-cycle policy may delete the versions, which only Azure Resource Manager shows"
    if not isinstance(azure, DeletesVersions):
        return False, f"{asked}: enable the provider azure"
    try:
        return azure.deletes_versions(f"{account}/{place.bucket}", place.prefix), ""
    except ProviderError as error:
        return False, f"{asked}: {error}"


def _recent(answer: Answer) -> Iterator[ElementTree.Element]:
    """The blobs of a list that were just written, by the clock of the store. Raises ValueError, ParseError."""
    now = parsedate_to_datetime(answer.headers.get("date", ""))
    for blob in ElementTree.fromstring(answer.body).iter("Blob"):
        written: datetime = parsedate_to_datetime(blob.findtext(".//Last-Modified") or "")
        if abs((now - written).total_seconds()) <= JUST_NOW_S:
            yield blob


def _authorized(account: str, path: str, query: Mapping[str, str]) -> tuple[str, dict[str, str], str]:
    """(query, headers, reason): what to add to the query and the headers, from the store's credentials; else the reason
    why there are none."""
    headers = {"x-ms-date": format_datetime(utc_now(), usegmt=True), "x-ms-version": VERSION}
    token = os.environ.get("AZURE_STORAGE_TOKEN")
    key, signature = (next(filter(None, map(os.environ.get, names)), "") for names in (_KEYS, _SIGNATURES))
    if key and not token:
        return "", {**headers, "Authorization": _shared_key(account, key, path, query, headers)}, ""
    if signature and not token:
        return f"&{signature.lstrip('?')}", headers, ""
    if not token:
        try:
            from azure.core.exceptions import ClientAuthenticationError
            from azure.identity import DefaultAzureCredential
        except ModuleNotFoundError:
            return "", {}, "this needs azure-identity, which is not installed: pip install 'tradewind[azure]'"
        try:
            token = DefaultAzureCredential(process_timeout=10).get_token(SCOPE).token
        except ClientAuthenticationError as error:
            return "", {}, f"azure-identity returned no token: {str(error).splitlines()[0]:.120}"
    return "", {**headers, "Authorization": f"Bearer {token}"}, ""


def _shared_key(account: str, key: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """The header of a GET without other headers:
    https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key."""
    lines = ["GET", *[""] * 11, *(f"{name}:{headers[name]}" for name in sorted(headers)), f"/{account}{path}"]
    lines += [f"{name}:{query[name]}" for name in sorted(query)]
    digest = hmac.new(base64.b64decode(key), "\n".join(lines).encode(), sha256).digest()
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"
