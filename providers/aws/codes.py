"""The table of AWS's error codes and what they mean to Tradewind.

Sources: [codes] "Error codes for the Amazon EC2 API" (docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html);
[s3] "Error responses" (docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html); [common] "Common error types" of
the query protocol (docs.aws.amazon.com/ec2/latest/APIReference/CommonErrors.html); [sdk] the codes that botocore itself
repeats (botocore/data/_retry.json); [seen] not documented there, but observed. Any other code is treated as an error in
the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from providers.error_codes import Meaning, row
from providers.errors import (
    AuthError,
    CapacityError,
    ClockSkewError,
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

USED_TOKEN = ("IdempotentParameterMismatch", "IdempotentInstanceTerminated")
NO_INSTANCE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidID")
NO_NETWORK = (
    "InvalidVpcID.NotFound",
    "InvalidSubnetID.NotFound",
    "InvalidInternetGatewayID.NotFound",
    "InvalidRouteTableID.NotFound",
    "InvalidGroup.NotFound",
    "InvalidSecurityGroupID.NotFound",
    "Gateway.NotAttached",
)
NO_BUCKET = ("NoSuchBucket",)
TEMPLATE_EXISTS = ("InvalidLaunchTemplateName.AlreadyExistsException",)
NO_FLEET = ("InvalidFleetId.NotFound", "InvalidFleetId", "NoSuchFleet")
NO_TEMPLATE = ("InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound")
MADE_BEFORE = (
    "Resource.AlreadyAssociated",
    "RouteAlreadyExists",
    "InvalidPermission.Duplicate",
    "InvalidGroup.Duplicate",
    "InvalidSubnet.Conflict",
)


_BUCKET = "correct store_root in tradewind.toml: 3 to 63 small letters, digits, dashes and dots"
_BUCKET_REGION = "correct store_region in tradewind.toml, or AWS_REGION: a region that the account has enabled"
_CAPACITY = "Tradewind tries other zones and types, and tries again later"
_QUOTA = "request an increase: aws service-quotas list-service-quotas --service-code ec2; or end other machines"
_IMAGE = "correct providers.aws.image in tradewind.toml: an AMI belongs to one region; a parameter works in all"
_NETWORK = "create it again: tradewind up --cloud aws"
_NETWORK_QUOTA = (
    "request an increase: aws service-quotas list-service-quotas --service-code vpc; or remove other resources"
)
_USED = "remove what still uses it, then run the command again"
_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_CLOCK = "set this machine's clock (timedatectl set-ntp true): AWS allows 5 minutes"
_LOGIN = "get new credentials: aws sso login, or a new session token"


def _rows() -> Iterator[tuple[str, Meaning]]:
    yield from row("InsufficientInstanceCapacity InsufficientCapacity", CapacityError, "zone", "codes", _CAPACITY)
    yield from row("UnfulfillableCapacity", CapacityError, "zone", "seen", _CAPACITY)
    yield from row("Unsupported", CapacityError, "zone", "codes", "the zone does not have this type")
    yield from row("InsufficientFreeAddressesInSubnet", CapacityError, "zone", "codes", "the zone's subnet is full")
    yield from row("SpotMaxPriceTooLow", PriceError, "zone", "codes")
    yield from row("VcpuLimitExceeded InstanceLimitExceeded", QuotaError, "region", "codes", _QUOTA)
    yield from row("MaxSpotInstanceCountExceeded", QuotaError, "region", "codes", _QUOTA)
    yield from row("MaxSpotFleetRequestCountExceeded VolumeLimitExceeded", QuotaError, "region", "codes", _QUOTA)
    yield from row("RequestLimitExceeded", ThrottledError, "region", "codes")
    yield from row("Throttling ThrottlingException ThrottledException", ThrottledError, "account", "sdk")
    yield from row("RequestThrottled RequestThrottledException SlowDown", ThrottledError, "account", "sdk")
    yield from row("TooManyRequestsException BandwidthLimitExceeded", ThrottledError, "account", "sdk")
    yield from row("MaxConfigLimitExceeded", ThrottledError, "account", "seen")
    yield from row("UnauthorizedOperation AccessDenied", PermissionDeniedError, "account", "codes")
    yield from row("AccessDeniedException", PermissionDeniedError, "account", "common")
    role = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"  # of an account's first spot machine
    yield role, Meaning(PermissionDeniedError, "account", "codes", "", "iam:CreateServiceLinkedRole")
    yield from row("AuthFailure SignatureDoesNotMatch", AuthError, "account", "codes", _KEYS)
    yield from row("OptInRequired Blocked PendingVerification", AuthError, "account", "codes", _KEYS)
    yield from row("InvalidClientTokenId UnrecognizedClientException", AuthError, "account", "common", _KEYS)
    yield from row("InvalidSignatureException", AuthError, "account", "common", _KEYS)
    yield from row("ExpiredToken ExpiredTokenException", ExpiredCredentialsError, "account", "common", _LOGIN)
    yield from row("TokenRefreshRequired", ExpiredCredentialsError, "account", "common", _LOGIN)
    yield from row("RequestExpired", ClockSkewError, "account", "codes", _CLOCK)
    yield from row("RequestTimeTooSkewed RequestInTheFuture", ClockSkewError, "account", "common", _CLOCK)
    for code in USED_TOKEN:
        yield from row(code, ConflictError, "request", "codes", "use a new token for a new request")
    for code in TEMPLATE_EXISTS:
        yield from row(code, ConflictError, "request", "codes", "use a new token for a new request")
    for code in (*NO_INSTANCE, *NO_TEMPLATE):
        yield from row(code, NotFoundError, "request", "codes")
    yield from row("InvalidAMIID.NotFound InvalidAMIID.Malformed", SetupError, "region", "codes", _IMAGE)
    yield from row("InvalidAMIID.Unavailable ParameterNotFound", SetupError, "region", "codes", _IMAGE)
    yield from row("InvalidBlockDeviceMapping", SetupError, "region", "codes", "raise providers.aws.disk_gb")
    for code in NO_NETWORK:
        yield from row(code, SetupError, "region", "codes", _NETWORK)
    yield from row("DependencyViolation", UnavailableError, "region", "codes", _USED)
    for code in MADE_BEFORE:
        yield from row(code, UnavailableError, "region", "codes", "EC2 does not show it yet: try again")
    yield from row("VpcLimitExceeded InternetGatewayLimitExceeded", QuotaError, "region", "codes", _NETWORK_QUOTA)
    yield from row("SubnetLimitExceeded SecurityGroupLimitExceeded", QuotaError, "region", "codes", _NETWORK_QUOTA)
    yield from row("InvalidAvailabilityZone InvalidInstanceType", NotFoundError, "request", "codes")
    for code in NO_BUCKET:
        yield from row(code, NotFoundError, "request", "s3")
    yield from row("OperationAborted", UnavailableError, "region", "s3", "another change is in progress: try again")
    yield from row("InvalidAccessKeyId InvalidToken", AuthError, "account", "s3", _KEYS)
    yield from row("IllegalLocationConstraintException", SetupError, "account", "s3", _BUCKET_REGION)
    yield from row("InvalidLocationConstraint", SetupError, "account", "s3", _BUCKET_REGION)
    yield from row("InvalidBucketName", SetupError, "account", "s3", _BUCKET)
    yield from row("TooManyBuckets", QuotaError, "account", "s3", "remove other ones, or ask AWS for a higher limit")
    yield from row("InternalError InternalFailure ServerInternal", UnavailableError, "region", "codes")
    yield from row("ServiceUnavailable Unavailable", UnavailableError, "region", "codes")


CODES: Mapping[str, Meaning] = dict(_rows())
