"""Turns the errors of obstore into ours.

obstore has few kinds of errors; the HTTP status and S3's error code are in the text only. S3's codes:
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
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

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_ROLE = re.compile(r"/latest/api/token|/latest/meta-data/|169\.254\.170\.2")  # where a machine's role is asked for
_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_CREDENTIALS = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
_THROTTLED = {"SlowDown", "TooManyRequests", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable"}
_FULL = {"EntityTooLarge", "InsufficientStorage", "XMinioStorageFull"}


class BeyondTheEnd(ObjectStoreError):
    """A range begins after the end of the object."""


def of_bucket(error: Exception) -> bool:
    """Whether "not found" means the bucket."""
    return "NoSuchBucket" in str(error)


def require_final(error: Exception, url: str) -> None:
    """Raises StoreThrottled if a conditional put was refused only because another request was in progress.

    Raises StoreNotFound if it was refused because there is no bucket.
    """
    if "ConditionalRequestConflict" in str(error) or "OperationAborted" in str(error):
        raise StoreThrottled(f"{url}: another request is changing the same object", hint="try again") from error
    if of_bucket(error):
        raise named(error, url) from error


def named(error: Exception, url: str) -> ObjectStoreError:
    """Our error for one of obstore's. `url` is the store's."""
    text = str(error)
    status, code = _found(_STATUS, text), _found(_CODE, text)
    answer = " ".join(part for part in (status, code, _found(_MESSAGE, text)) if part)
    if _ROLE.search(text):
        return StoreDenied(
            f"{url}: there are no credentials, and this machine has no role",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if "No CA certificates" in text:
        return ObjectStoreError(
            f"{url}: this machine has no certificates to recognize the store by",
            hint="install them: apt-get install ca-certificates",
        )
    if code == "NoSuchBucket":
        return StoreNotFound(f"{url}: the bucket does not exist", hint="create it, or correct its name")
    if code in _REGION or status == "301" or "redirect without LOCATION" in text:
        return StoreNotFound(f"{url}: the bucket is in another region", hint="set AWS_REGION to the bucket's region")
    if code == "RequestTimeTooSkewed":
        return StoreDenied(f"{url}: the time of this machine is wrong", hint="set the clock")
    if status == "416":
        return BeyondTheEnd(f"{url}: the range begins after the end of the object")
    if code in _FULL or "Quota" in code or status == "507":
        return StoreFull(f"{url}: {answer}", hint="free space there, or raise the quota")
    if status == "405":
        return StoreReadOnly(f"{url}: {answer}", hint="use a bucket that can be written")
    if code in _CREDENTIALS or status in ("401", "403"):
        return StoreDenied(f"{url}: access denied ({answer})", hint=_RIGHTS)
    if code in _THROTTLED or status == "429":
        return StoreThrottled(f"{url}: too many requests ({answer})", hint="try again later")
    if status.startswith("5") or status == "408" or code == "RequestTimeout" or "HTTP error" in text:
        return StoreUnavailable(
            f"{url}: no answer ({answer or _reason(text)})", hint="check the network and AWS_ENDPOINT_URL, or try later"
        )
    return ObjectStoreError(f"{url}: the store refuses the request ({answer or _reason(text)})", hint=_RIGHTS)


_RIGHTS = (
    "check the credentials (AWS_ACCESS_KEY_ID and so on); they need s3:GetObject, s3:PutObject, s3:DeleteObject and "
    "s3:ListBucket there"
)


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _reason(text: str) -> str:
    """What went wrong, in few words: a time-out, or the end of the first line."""
    if "kind: Timeout" in text:
        return "time-out"
    return text.partition("\n")[0].rpartition(" - ")[2][:200]
