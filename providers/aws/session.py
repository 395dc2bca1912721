"""Connections to AWS through boto3, and the conversion of its exceptions.

Endpoints follow boto3's conventions (AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_EC2, the config file), so a test or a private
endpoint needs no option here.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.parsers import ResponseParserError

from providers.collect.http import retry_after_s
from providers.errors import (
    AuthError,
    ClockSkewError,
    CutOffError,
    ExpiredCredentialsError,
    FormatError,
    NoCredentialsError,
    PermissionDeniedError,
    ProviderError,
    RegionDisabledError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)

HOME_REGION = "us-east-1"
THROTTLED = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException", "SlowDown"}
THROTTLED |= {"RequestThrottled", "RequestThrottledException", "BandwidthLimitExceeded", "MaxConfigLimitExceeded"}
DENIED = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
SKEWED = {"RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture"}
UNKNOWN_KEY = {"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "OptInRequired"}
UNKNOWN_KEY |= {"SignatureDoesNotMatch", "InvalidSignatureException"}


class Connections:
    """Clients by service and region, each made once under a lock because boto3's sessions are not thread-safe.

    Timeouts and attempts are short on purpose: botocore's defaults can hold one region for minutes.
    """

    def __init__(self, connect_s: float = 5.0, read_s: float = 30.0, attempts: int = 3) -> None:
        self._config = Config(
            connect_timeout=connect_s,
            read_timeout=read_s,
            retries={"mode": "adaptive", "total_max_attempts": attempts},
            user_agent_extra="tradewind",
        )
        self._making = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str], Any] = {}

    @property
    def home_region(self) -> str:
        """The region of the environment (AWS_REGION, AWS_DEFAULT_REGION), else us-east-1."""
        return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or HOME_REGION

    def client(self, service: str, region: str) -> Any:
        """A boto3 client. Raises botocore's exceptions for an invalid configuration."""
        with self._making:
            if self._session is None:
                self._session = boto3.session.Session()
            key = (service, region)
            if key not in self._clients:
                self._clients[key] = self._session.client(service, region_name=region, config=self._config)
            return self._clients[key]


def to_provider_error(error: Exception, *, in_region: str = "") -> ProviderError | None:
    """Convert a botocore exception to a provider error; None if it is not one of botocore's.

    With `in_region`, the account has already been accepted elsewhere: rejected credentials then mean a disabled region.
    """
    if isinstance(error, exceptions.ClientError):
        return _refused(error, in_region)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return NoCredentialsError(
            "no AWS credentials were found",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run: aws configure",
        )
    if isinstance(error, exceptions.ProfileNotFound):
        return NoCredentialsError(str(error), hint="set AWS_PROFILE to a profile of ~/.aws/config")
    if isinstance(error, exceptions.TokenRetrievalError | exceptions.CredentialRetrievalError):
        return ExpiredCredentialsError(str(error), hint="log in again: aws sso login")
    if isinstance(error, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError):
        return TimedOutError(f"AWS {in_region} did not answer in time".replace("  ", " "))
    if isinstance(error, ResponseParserError):  # botocore does not check the length: a truncated answer ends up here
        return CutOffError(f"AWS {in_region} sent an incomplete answer: {str(error)[:100]}".replace("  ", " "))
    if isinstance(
        error, exceptions.ConnectionClosedError | exceptions.ResponseStreamingError | exceptions.IncompleteReadError
    ):
        return CutOffError("the connection ended in the middle of AWS's answer")
    if isinstance(error, exceptions.HTTPClientError | exceptions.EndpointConnectionError):
        return UnavailableError(f"AWS {in_region} cannot be reached: {error}".replace("  ", " "))
    if isinstance(error, exceptions.PaginationError):
        return FormatError(f"AWS's pages repeat: {error}")
    if isinstance(error, exceptions.BotoCoreError):
        return ProviderError(f"boto3: {error}")
    return None


def _refused(error: exceptions.ClientError, in_region: str) -> ProviderError:
    body = error.response.get("Error", {})
    code, text = body.get("Code", "unknown"), body.get("Message", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    message = f"{error.operation_name}: {code}: {text}"
    if code in THROTTLED or status == 429:
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return ThrottledError(message, retry_after_s=retry_after_s(headers))
    if code in SKEWED or (code == "AuthFailure" and "not yet" in text) or "Signature expired" in text:
        return ClockSkewError(message, hint="set this machine's clock (timedatectl set-ntp true): AWS allows 5 minutes")
    if code in EXPIRED:
        return ExpiredCredentialsError(message, hint="get new credentials: aws sso login, or a new session token")
    if code in DENIED:
        action = f"{_prefix(error)}:{error.operation_name}"
        return PermissionDeniedError(message, action=action, hint=f"add to the account's policy: {policy_line(action)}")
    if code in UNKNOWN_KEY:
        if in_region:
            hint = f"enable it: aws account enable-region --region-name {in_region}; or remove it from `regions`"
            return RegionDisabledError(f"{in_region} does not accept this account: {message}", hint=hint)
        return AuthError(message, hint="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return UnavailableError(message) if status >= 500 else ProviderError(message)


def policy_line(action: str) -> str:
    """The policy statement that grants an action on all resources, as reading prices needs."""
    return f'{{"Effect": "Allow", "Action": "{action}", "Resource": "*"}}'


def _prefix(error: exceptions.ClientError) -> str:
    pricing = {"GetProducts", "DescribeServices", "ListPriceLists", "GetAttributeValues"}
    if error.operation_name in pricing:
        return "pricing"
    return "sts" if error.operation_name == "GetCallerIdentity" else "ec2"
