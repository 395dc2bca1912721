"""The rules of a Cloud Storage bucket, from its metadata, which need the permission `storage.buckets.get`.

https://cloud.google.com/storage/docs/json_api/v1/buckets/get
https://cloud.google.com/storage/docs/soft-delete (by default, deleted objects are kept for 7 days)
https://cloud.google.com/storage/docs/lifecycle
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.services.doctor.rules import Rules, ask
from trainers.objects.services import Place

ADDRESS = "https://storage.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
RIGHT = "storage.buckets.get (roles/storage.legacyBucketReader)"
_KEY_FILES = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
_OF_OLD_VERSIONS = {"numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore"}

_Bucket = Mapping[str, Any]


def gcs_rules(place: Place) -> Rules:
    """The rules of the bucket."""
    token, why = _token()
    if not token:
        return Rules(unchecked=why)
    address = (os.environ.get("GOOGLE_BASE_URL") or ADDRESS).rstrip("/")
    fields = "fields=versioning,lifecycle,softDeletePolicy,location,locationType"
    answer = ask(f"{address}/storage/v1/b/{place.bucket}?{fields}", {"Authorization": f"Bearer {token}"})
    if answer.status == 403:
        return Rules(unchecked=f"its metadata cannot be read, which needs {RIGHT}")
    if not answer.good:
        return Rules(unchecked=f"its metadata cannot be read (status {answer.status})")
    try:
        found: _Bucket = json.loads(answer.body)
        region = str(found.get("location", "")).lower() if found.get("locationType") == "region" else ""
        return Rules(tuple(_costly(place, found)), region=region)
    except (ValueError, TypeError, AttributeError):
        return Rules(unchecked="its metadata is not valid")


def _costly(place: Place, bucket: _Bucket) -> Iterator[tuple[str, str]]:
    change = f"gcloud storage buckets update gs://{place.bucket}"
    rules = [rule for rule in bucket.get("lifecycle", {}).get("rule", []) if _covers(rule, f"{place.prefix}/")]
    soft_s = int(bucket.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
    if soft_s > 0:
        yield (
            f"the bucket keeps, and bills, all deleted data for {soft_s / 86_400:.3g} days",
            f"{change} --clear-soft-delete",
        )
    if bucket.get("versioning", {}).get("enabled") and not any(map(_deletes_versions, rules)):
        yield "the bucket keeps, and bills, versions of all deleted or replaced data", f"{change} --no-versioning"
    if not any(_type(rule) == "AbortIncompleteMultipartUpload" for rule in rules):
        yield (
            "the bucket keeps, and bills, parts of interrupted uploads",
            "add a life-cycle rule that aborts incomplete multipart uploads (docs/operations.md)",
        )


def _covers(rule: _Bucket, prefix: str) -> bool:
    """Whether a rule applies to all objects below `prefix`."""
    condition = rule.get("condition", {})
    prefixes = condition.get("matchesPrefix") or [""]
    narrow = {"matchesSuffix", "matchesStorageClass", "createdBefore", "customTimeBefore", "daysSinceCustomTime"}
    return any(prefix.startswith(each) for each in prefixes) and not narrow & set(condition)


def _deletes_versions(rule: _Bucket) -> bool:
    condition = rule.get("condition", {})
    return _type(rule) == "Delete" and (condition.get("isLive") is False or bool(_OF_OLD_VERSIONS & set(condition)))


def _type(rule: _Bucket) -> str:
    return str(rule.get("action", {}).get("type", ""))


def _token() -> tuple[str, str]:
    """The access token from the store's credentials, or "" and the reason why there is none."""
    given = os.environ.get("GOOGLE_BEARER_TOKEN")
    if given:
        return given, ""
    try:
        import google.auth
        from google.auth.transport.requests import Request
    except ModuleNotFoundError:
        return "", "this needs google-auth, which is not installed: pip install 'tradewind[gcp]'"
    file = next(filter(None, map(os.environ.get, _KEY_FILES)), None)
    try:
        found, _ = google.auth.load_credentials_from_file(file, [SCOPE]) if file else google.auth.default([SCOPE])
        found.refresh(Request())
    except (google.auth.exceptions.GoogleAuthError, OSError) as error:
        return "", f"google-auth returned no token: {str(error).splitlines()[0]:.120}"
    return found.token or "", "google-auth returned no token"
