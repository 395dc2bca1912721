"""The bucket of an installation on Cloud Storage, through its JSON API.

The call that creates it sets all its settings, and a label that names the installation. google-cloud-compute does not
support buckets, so requests are plain REST. https://cloud.google.com/storage/docs/json_api/v1/buckets
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from providers.bucket import ABORT_AFTER_DAYS, AT_MOST, Bucket, Contents, not_empty, not_ours, taken
from providers.errors import ConflictError, NotFoundError, PermissionDeniedError
from providers.gcp.calls import INSTALL
from providers.gcp.names import PROVIDER, label
from providers.gcp.session import Connections

_ABORT = {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": ABORT_AFTER_DAYS}}
_UNIFORM = {"uniformBucketLevelAccess": {"enabled": True}}
_PRIVATE = {"publicAccessPrevention": "enforced"}
_RULES: Mapping[str, Any] = {
    "softDeletePolicy": {"retentionDurationSeconds": "0"},
    "versioning": {"enabled": False},
    "lifecycle": {"rule": [_ABORT]},
}

_Row = Mapping[str, Any]


class Buckets:
    """Methods raise ProviderError."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def bucket(self, install: str, name: str) -> Bucket | None:
        """See MakesBuckets."""
        row = self._row(name)
        if row is None:
            return None
        own = row.get("labels", {}).get(INSTALL) == label(install)
        missing = tuple(what for what, _ in _wrong(row)) if own else ()
        return Bucket(PROVIDER, _url(name), str(row["location"]).lower(), own, missing)

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        denied: PermissionDeniedError | None = None
        try:
            row = self._row(name)
        except PermissionDeniedError as error:  # another account's, or the login may not read it
            row, denied = None, error
        if row is None:
            if self._make(install, name, region, denied):
                progress(f"bucket {_url(name)} was made in {region}")
        elif row.get("labels", {}).get(INSTALL) == label(install):
            for what, change in _wrong(row):
                self._connections.send("PATCH", f"b/{name}", body=change)
                progress(f"bucket {_url(name)}: {what} was set")

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        row, command = self._row(name), f"gcloud storage rm --recursive {_url(name)}"
        if row is None:
            return
        if row.get("labels", {}).get(INSTALL) != label(install):
            progress(not_ours(_url(name), command))
            return
        holds = self._contents(name)
        if holds.objects:
            progress(not_empty(_url(name), holds, command))
            return
        try:
            self._connections.send("DELETE", f"b/{name}")
        except NotFoundError:
            return
        except ConflictError:  # objects written since the listing, or only old versions
            progress(not_empty(_url(name), "objects", command))
            return
        progress(f"bucket {_url(name)} was removed")

    def _make(self, install: str, name: str, region: str, denied: PermissionDeniedError | None) -> bool:
        """False if the project had it before: an earlier call made it and its answer was lost, or another installation
        has just made it."""
        asked = {
            "name": name,
            "location": region,
            "labels": {INSTALL: label(install)},
            "iamConfiguration": {**_UNIFORM, **_PRIVATE},
            **_RULES,
        }
        try:
            self._connections.send("POST", "b", {"project": self._connections.project}, asked)
        except ConflictError as error:
            if "already own it" not in str(error):
                raise taken(name, "store_root in tradewind.toml") from error
            if denied is not None:
                raise denied from error
            return False
        return True

    def _row(self, name: str) -> _Row | None:
        try:
            found: _Row = self._connections.send("GET", f"b/{name}")
        except NotFoundError:
            return None
        return found

    def _contents(self, name: str) -> Contents:
        asked = {"maxResults": str(AT_MOST), "fields": "items(size),nextPageToken"}
        page = self._connections.send("GET", f"b/{name}/o", asked)
        sizes = [int(each["size"]) for each in page.get("items", [])]
        return Contents(len(sizes), sum(sizes), "nextPageToken" in page)


def _url(name: str) -> str:
    return f"gs://{name}"


def _wrong(row: _Row) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a bucket made by Tradewind lacks, and the change that corrects it. The last change needs
    storage.buckets.setIamPolicy, which the printed role does not grant because it allows sharing all buckets of a
    project."""
    access = row.get("iamConfiguration", {})
    rules = row.get("lifecycle", {}).get("rule", [])
    if int(row.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)):
        yield "immediate deletion", {"softDeletePolicy": _RULES["softDeletePolicy"]}
    if row.get("versioning", {}).get("enabled"):
        yield "keeping no versions", {"versioning": _RULES["versioning"]}
    if not any(_aborts(rule) for rule in rules):
        yield "the rule that aborts unfinished uploads", {"lifecycle": {"rule": [*rules, _ABORT]}}
    if not access.get("uniformBucketLevelAccess", {}).get("enabled"):
        yield "uniform bucket-level access", {"iamConfiguration": _UNIFORM}
    if access.get("publicAccessPrevention") != "enforced":
        yield "public access prevention", {"iamConfiguration": _PRIVATE}


def _aborts(rule: _Row) -> bool:
    """Whether a rule aborts all uploads that were not finished in time, not only some of them."""
    condition = rule.get("condition", {})
    aborts = rule.get("action", {}).get("type") == "AbortIncompleteMultipartUpload"
    return aborts and condition.keys() == {"age"} and int(condition["age"]) <= ABORT_AFTER_DAYS
