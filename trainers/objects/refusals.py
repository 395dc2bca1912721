"""Converts the errors of obstore to ours.

obstore has few kinds of errors; the HTTP status and the store's error code are only in the text. The codes:
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
https://cloud.google.com/storage/docs/xml-api/reference-status
https://learn.microsoft.com/en-us/rest/api/storageservices/blob-service-error-codes
"""

from __future__ import annotations

import re

from trainers.errors import (
    ObjectStoreError,
    StoreDenied,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
    StoreThrottled,
    StoreUnavailable,
)
from trainers.objects.credentials import SILENT
from trainers.objects.services import Place

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_ROLE = re.compile(r"/latest/api/token|/latest/meta-data/|169\.254\.170\.2|/computeMetadata/v1/|/metadata/identity/")
"""The addresses of the metadata services for a machine's role, on the three clouds."""
_MISSING = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "ContainerBeingDisabled", "ContainerDisabled"}
_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_CREDENTIALS = {
    *("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
    *("AuthenticationRequired", "InvalidAuthenticationInfo", "AuthenticationFailed"),
}
_THROTTLED = {"SlowDown", "TooManyRequests", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable"}
_THROTTLED |= {"RateLimitExceeded", "ServerBusy"}
_FULL = {"EntityTooLarge", "InsufficientStorage", "XMinioStorageFull"}
_READ_ONLY = {"BlobImmutableDueToPolicy", "RetentionPolicyNotMet", "ObjectUnderActiveHold"}
_CONFLICT = {"", "BlobAlreadyExists", "PreconditionFailed"}


class BeyondTheEnd(ObjectStoreError):
    """A range begins after the end of the object."""


def of_bucket(error: Exception) -> bool:
    """Whether "not found" means the bucket."""
    return _found(_CODE, str(error)) in _MISSING


def require_final(error: Exception, place: Place) -> None:
    """Raises an error if a conditional put was refused for another reason than a changed object: because another
    request was in progress, the bucket does not exist, or it is read-only."""
    text = str(error)
    code = _found(_CODE, text)
    if code in ("ConditionalRequestConflict", "OperationAborted"):
        raise StoreThrottled(f"{place.url}: another request is changing the same object", hint="try again") from error
    if code in _MISSING or (_found(_STATUS, text) == "409" and code not in _CONFLICT):
        raise named(error, place) from error


def named(error: Exception, place: Place) -> ObjectStoreError:
    """Our error for an error of obstore about something in `place`."""
    text, url, service = str(error), place.url, place.service
    status, code = _found(_STATUS, text), _found(_CODE, text)
    answer = " ".join(part for part in (status, code, _found(_MESSAGE, text)) if part)
    if SILENT in text:
        return StoreUnavailable(f"{url}: {SILENT}", hint="the agent is ending or restarting; Tradewind tries again")
    if _ROLE.search(text):
        return StoreDenied(f"{url}: there are no credentials, and this machine has no role", hint=service.credentials)
    if "No CA certificates" in text:
        return ObjectStoreError(
            f"{url}: this machine has no CA certificates to verify the store",
            hint="install them: apt-get install ca-certificates",
        )
    if code in _MISSING:
        make = service.made_by(place.bucket)
        return StoreNotFound(f"{url}: the bucket does not exist", hint=f"correct its name, or create it: {make}")
    if code in _REGION or status == "301" or "redirect without LOCATION" in text:
        return StoreNotFound(f"{url}: the bucket is in another region", hint=service.region)
    if code == "RequestTimeTooSkewed":
        return StoreDenied(f"{url}: the time of this machine is wrong", hint="set the clock")
    if status == "416":
        return BeyondTheEnd(f"{url}: the range begins after the end of the object")
    if code in _FULL or "Quota" in code or status == "507":
        return StoreFull(f"{url}: {answer}", hint="free space there, or raise the quota")
    if code in _READ_ONLY or status == "405":
        return StoreReadOnly(f"{url}: {answer}", hint="use a bucket that can be written")
    if code in _CREDENTIALS or status in ("401", "403"):
        return StoreDenied(f"{url}: access denied ({answer})", hint=service.rights)
    if code in _THROTTLED or status == "429":
        return StoreThrottled(f"{url}: too many requests ({answer})", hint="try again later")
    if status.startswith("5") or status == "408" or code == "RequestTimeout" or "HTTP error" in text:
        return StoreUnavailable(
            f"{url}: no answer ({answer or _reason(text)})",
            hint=f"check the network and {service.endpoints[-1]}, or try later",
        )
    return ObjectStoreError(f"{url}: the store refuses the request ({answer or _reason(text)})", hint=service.rights)


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _reason(text: str) -> str:
    """A short reason: a timeout, or the end of the first line."""
    if "kind: Timeout" in text:
        return "time-out"
    return text.partition("\n")[0].rpartition(" - ")[2][:200]
