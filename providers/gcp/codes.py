"""The table of GCP's error codes and what they mean to Tradewind.

An operation has codes in capitals (`op.error.errors[].code`), a refused call has reasons (`error.errors[].reason`). The
library's exception depends on the HTTP status, so it is not used.

Sources, below docs.cloud.google.com/compute: [stock] docs/troubleshooting/troubleshooting-resource-availability; [bulk]
docs/troubleshooting/troubleshooting-bulk-vm-creation; [concurrent] operations-quota; [reasons] "Standard error
responses" (cloud.google.com/storage/docs/json_api/v1/status-codes), whose reasons Google's JSON APIs share; [seen] not
documented there, but handled by other programs that rent machines (SkyPilot, FailoverCloudErrorHandlerV2). Any other
code is treated as an error in the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from providers.error_codes import Meaning, row
from providers.errors import (
    CapacityError,
    ConflictError,
    ExpiredCredentialsError,
    NotFoundError,
    PermissionDeniedError,
    QuotaError,
    SetupError,
    ThrottledError,
    UnavailableError,
)
from providers.gcp.logins import LOGIN

EXISTS = ("alreadyExists", "RESOURCE_ALREADY_EXISTS")
ABSENT = ("notFound", "RESOURCE_NOT_FOUND")
CHANGED = ("conditionNotMet", "CONDITION_NOT_MET")
"""Another caller has just changed it; or, if the message names a constraint, a policy of the organisation forbids it
(GoogleCloudPlatform/compute-image-tools, pull request 1476)."""
ALL_REGIONS = "GPUS_ALL_REGIONS"
"""The quota that counts the GPUs of all regions: a message that names it applies to the account."""
MORE_QUOTA = "request an increase: console.cloud.google.com/iam-admin/quotas; or end other machines"


_CAPACITY = "Tradewind tries other zones and types, and tries again later"
_ENABLE = "run: gcloud services enable compute.googleapis.com"
_BILLING = "link a billing account: console.cloud.google.com/billing/projects"


def _rows() -> Iterator[tuple[str, Meaning]]:
    yield from row("ZONE_RESOURCE_POOL_EXHAUSTED", CapacityError, "zone", "stock", _CAPACITY)
    yield from row("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", CapacityError, "zone", "stock", _CAPACITY)
    yield from row("insufficientCapacity VM_MIN_COUNT_NOT_REACHED", CapacityError, "zone", "bulk", _CAPACITY)
    yield from row("UNSUPPORTED_OPERATION", CapacityError, "zone", "seen", "the machine was preempted while it started")
    yield from row("quotaExceeded", QuotaError, "region", "bulk", MORE_QUOTA)
    yield from row("QUOTA_EXCEEDED QUOTA_LIMIT", QuotaError, "region", "seen", MORE_QUOTA)
    yield from row("rateLimitExceeded", ThrottledError, "account", "bulk")
    yield from row("CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", ThrottledError, "account", "concurrent")
    yield from row("userRateLimitExceeded RATE_LIMIT_EXCEEDED", ThrottledError, "account", "reasons")
    yield from row("RESOURCE_OPERATION_RATE_EXCEEDED", ThrottledError, "account", "seen")
    yield from row("authError required expired", ExpiredCredentialsError, "account", "reasons", LOGIN)
    yield from row("forbidden insufficientPermissions", PermissionDeniedError, "account", "reasons")
    yield from row("IAM_PERMISSION_DENIED PERMISSIONS_ERROR", PermissionDeniedError, "account", "seen")
    yield from row("accessNotConfigured", PermissionDeniedError, "account", "reasons", _ENABLE)
    yield from row("BILLING_NOT_ACTIVE billingNotEnabled", PermissionDeniedError, "account", "seen", _BILLING)
    yield from row("accountDisabled", PermissionDeniedError, "account", "reasons", _BILLING)
    for code in EXISTS:
        yield from row(code, ConflictError, "request", "seen", "use a new token for a new request")
    for code in ABSENT:
        yield from row(code, NotFoundError, "request", "reasons")
    for code in CHANGED:
        yield from row(code, UnavailableError, "request", "reasons")
    yield from row("resourceNotReady RESOURCE_NOT_READY", UnavailableError, "request", "seen")
    yield from row("resourceInUseByAnotherResource RESOURCE_IN_USE", UnavailableError, "request", "seen")
    yield from row("DISK_SIZE_TOO_SMALL", SetupError, "region", "seen", "raise providers.gcp.disk_gb")
    yield from row("backendError internalError", UnavailableError, "region", "reasons")
    yield from row("INTERNAL_ERROR", UnavailableError, "zone", "seen")


CODES: Mapping[str, Meaning] = dict(_rows())
