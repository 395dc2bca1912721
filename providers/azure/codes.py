"""The table of Azure's error codes and what they mean to Tradewind.

Sources: [arm] "Troubleshoot common Azure deployment errors" (learn.microsoft.com/azure/azure-resource-manager/
troubleshooting/common-deployment-errors); [vm] "Troubleshoot allocation failures when you create VMs"
(learn.microsoft.com/troubleshoot/azure/virtual-machines) and "Understand common error messages" there; [spot] "Error
messages for Azure Spot Virtual Machines" (learn.microsoft.com/azure/virtual-machines/error-codes-spot); [karpenter] the
codes that Azure's own autoscaler distinguishes (github.com/Azure/karpenter-provider-azure, pkg/providers/instance/
offerings); [storage] "Status and error codes" and "Blob service error codes" (learn.microsoft.com/rest/api/
storageservices); [seen] not documented there, but observed. Any other code is classified by its HTTP status.

The HTTP status says less than the code: a lack of capacity is a 409, like a name that is taken, or arrives in a long
operation that answers with 200.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from providers.azure.logins import LOGIN
from providers.error_codes import Meaning, row
from providers.errors import (
    AuthError,
    CapacityError,
    ConflictError,
    ExpiredCredentialsError,
    NotFoundError,
    PermissionDeniedError,
    PriceError,
    QuotaError,
    SetupError,
    ThrottledError,
    UnavailableError,
)

NO_RESOURCE = ("ResourceNotFound", "NotFound")
NO_NETWORK = "InvalidResourceReference"
NO_GROUP = "ResourceGroupNotFound"
NO_PART = ("ContainerNotFound", "ManagementPolicyNotFound")
ABSENT = (*NO_RESOURCE, *NO_PART, NO_GROUP)
"""The resource, or its whole group, does not exist."""
TAKEN = ("StorageAccountAlreadyTaken", "StorageAccountAlreadyExists")
"""Another subscription has a storage account of this name."""


IN_USE = (
    "InUseSubnetCannotBeDeleted",
    "InUseNetworkSecurityGroupCannotBeDeleted",
    "NetworkSecurityGroupCannotBeDeleted",
)
"""A machine or another part still uses this part of a network."""
_CAPACITY = "Tradewind tries other regions and sizes, and tries again later"
_QUOTA = "request an increase: az quota, or Quotas in the portal; or end other machines"
_IMAGE = "correct providers.azure.image in tradewind.toml: publisher:offer:sku:version, or the id of an image"
_GROUP = "create it: tradewind up --cloud azure; or correct providers.azure.resource_group in tradewind.toml"
_NETWORK = "create it: tradewind up --cloud azure"
_REGISTER = "run: az provider register --namespace Microsoft.Compute (and Microsoft.Network, Microsoft.Storage)"
_ACCOUNT = "correct AZURE_STORAGE_ACCOUNT_NAME: 3 to 24 small letters and digits"
_SUBSCRIPTION = "check AZURE_SUBSCRIPTION_ID and the state of the subscription: az account list"
_POLICY = "a policy of the organisation forbids it: ask for an exemption, or use another region or size"


def _rows() -> Iterator[tuple[str, Meaning]]:
    yield from row("SkuNotAvailable", CapacityError, "region", "spot", _CAPACITY)
    yield from row("AllocationFailed", CapacityError, "region", "vm", _CAPACITY)
    yield from row("ZonalAllocationFailed", CapacityError, "zone", "vm", _CAPACITY)
    yield from row("OverconstrainedAllocationRequest", CapacityError, "region", "karpenter", _CAPACITY)
    yield from row("OverconstrainedZonalAllocationRequest", CapacityError, "zone", "karpenter", _CAPACITY)
    yield from row("SpotPriceGreaterThanProvidedMaxPrice", PriceError, "region", "spot")
    yield from row("QuotaExceeded ResourceQuotaExceeded", QuotaError, "region", "arm", _QUOTA)
    yield from row("PublicIPCountLimitReached", QuotaError, "region", "seen", _QUOTA)
    yield from row("TooManyRequests", ThrottledError, "account", "arm")
    yield from row("OperationNotAllowed Conflict", ConflictError, "request", "arm")
    yield from row("AnotherOperationInProgress RetryableError", UnavailableError, "request", "arm")
    yield from row("ResourceGroupBeingDeleted", UnavailableError, "account", "arm", "wait until it is deleted")
    yield from row("PreconditionFailed ConditionNotMet", ConflictError, "request", "seen")
    for code in NO_RESOURCE:
        yield from row(code, NotFoundError, "request", "arm")
    for code in TAKEN:
        yield from row(code, ConflictError, "account", "arm")
    yield from row("AccountNameInvalid", SetupError, "account", "arm", _ACCOUNT)
    yield from row("StorageAccountIsNotProvisioned", UnavailableError, "request", "seen", "wait until it is made")
    yield from row("StorageAccountOperationInProgress", UnavailableError, "request", "seen")
    yield from row("ContainerBeingDeleted", UnavailableError, "request", "storage", "wait until it is deleted")
    for code in NO_PART:
        yield from row(code, NotFoundError, "request", "storage")
    yield from row(NO_GROUP, SetupError, "account", "arm", _GROUP)
    yield from row(NO_NETWORK, SetupError, "region", "seen", _NETWORK)
    for code in IN_USE:
        yield from row(code, UnavailableError, "region", "seen", "try again when its machines are gone")
    yield from row("PlatformImageNotFound ImageNotFound", SetupError, "region", "vm", _IMAGE)
    yield from row("GalleryImageNotFound MarketplacePurchaseEligibilityFailed", SetupError, "region", "arm", _IMAGE)
    yield from row("VMMarketplaceInvalidInput", SetupError, "region", "vm", _IMAGE)
    yield from row("MissingSubscriptionRegistration NoRegisteredProviderFound", SetupError, "account", "arm", _REGISTER)
    yield from row("RequestDisallowedByPolicy", SetupError, "region", "arm", _POLICY)
    yield from row("AzureSpotFeatureNotEnabledForSubscription", SetupError, "account", "spot", _SUBSCRIPTION)
    yield from row("ReadOnlyDisabledSubscription SubscriptionNotFound", AuthError, "account", "arm", _SUBSCRIPTION)
    yield from row("DisallowedOperation", AuthError, "account", "arm", _SUBSCRIPTION)
    yield from row("AuthorizationFailed LinkedAuthorizationFailed", PermissionDeniedError, "account", "arm")
    yield from row("ExpiredAuthenticationToken ExpiredToken", ExpiredCredentialsError, "account", "arm", LOGIN)
    yield from row("InvalidAuthenticationToken InvalidAuthenticationTokenTenant", AuthError, "account", "arm", LOGIN)
    yield from row("InternalServerError InternalError InternalExecutionError", UnavailableError, "region", "vm")
    yield from row("ServiceUnavailable ServerTimeout OperationTimedOut", UnavailableError, "region", "seen")
    yield from row("InternalOperationError NetworkingInternalOperationError", UnavailableError, "region", "vm")


CODES: Mapping[str, Meaning] = dict(_rows())

_BY_TEXT = (
    (re.compile(r"quota|approved .*cores", re.I), CODES["QuotaExceeded"]),
    (re.compile(r"max ?price|spot price", re.I), CODES["SpotPriceGreaterThanProvidedMaxPrice"]),
    (re.compile(r"being deleted|in progress|marked for deletion", re.I), CODES["AnotherOperationInProgress"]),
)


def meaning(code: str, message: str) -> Meaning | None:
    """The meaning of a refusal. One code covers quotas, prices and forbidden changes; its text distinguishes them."""
    if code in ("OperationNotAllowed", "Conflict", "BadRequest"):
        for pattern, found in _BY_TEXT:
            if pattern.search(message):
                return found
    return CODES.get(code)
