"""Connections to AWS through boto3, and the conversion of its exceptions.

Endpoints follow boto3's conventions (AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_EC2, the config file), so a test or a private
endpoint needs no option here.
"""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.parsers import ResponseParserError

from providers.aws.calls import statement_of
from providers.aws.codes import CODES
from providers.collect.error_bodies import refuse
from providers.collect.http import retry_after_s
from providers.errors import (
    AuthError,
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
from providers.key_files import refuse_open

HOME_REGION = "us-east-1"
LONGEST_ERROR_BYTES = 4096
_XML_ERROR = re.compile(rb"\s*(<\?xml[^>]*>)?\s*<(Response|ErrorResponse)\b[^>]*>\s*<(Errors|Error)>.*", re.DOTALL)
"""The errors of EC2 (Response), and of IAM, STS and the like (ErrorResponse)."""


class Connections:
    """Clients by service and region, each made once under a lock because boto3's sessions are not thread-safe.

    Timeouts and attempts are short on purpose: botocore's defaults can hold one region for minutes.
    """

    def __init__(self, connect_s: float = 5.0, read_s: float = 30.0, attempts: int = 3) -> None:
        common = Config(connect_timeout=connect_s, read_timeout=read_s, user_agent_extra="tradewind")
        self._patient = common.merge(Config(retries={"mode": "adaptive", "total_max_attempts": attempts}))
        self._once = common.merge(Config(retries={"total_max_attempts": 1}))
        self._making = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}

    @property
    def home_region(self) -> str:
        """The region of the environment (AWS_REGION, AWS_DEFAULT_REGION), or else us-east-1."""
        return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or HOME_REGION

    def client(self, service: str, region: str, *, once: bool = False) -> Any:
        """A boto3 client. With `once`, it never repeats a call: boto3 would also repeat calls that AWS may have carried
        out. Raises botocore's exceptions for an invalid configuration, SetupError for keys that every user can read."""
        with self._making:
            if self._session is None:
                _refuse_open_keys()
                self._session = boto3.session.Session()
            key = (service, region, once)
            if key not in self._clients:
                config = self._once if once else self._patient
                made = self._session.client(service, region_name=region, config=config)
                made.meta.events.register("before-parse", _refuse_error)
                self._clients[key] = made
            return self._clients[key]


def _refuse_error(response_dict: Any, **_: Any) -> None:
    """A hook of botocore. Raises UnavailableError for an error with the status of a success; botocore itself notices
    only those of S3."""
    status, body = response_dict["status_code"], response_dict["body"]
    if status >= 300 or not isinstance(body, bytes):
        return
    if found := _XML_ERROR.match(body[:LONGEST_ERROR_BYTES]):
        said = [re.search(rb"<%s>(.*?)</%s>" % (tag, tag), found[0], re.DOTALL) for tag in (b"Code", b"Message")]
        refuse("AWS", status, *(each[1].decode(errors="replace") if each else "" for each in said))
    elif b'"__type"' in body[:LONGEST_ERROR_BYTES]:
        with suppress(ValueError):
            error = json.loads(body)
            refuse("AWS", status, error.get("__type"), error.get("Message") or error.get("message"))


def _refuse_open_keys() -> None:
    """Raises SetupError if boto3 would read keys from a file that every user can read."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return
    for variable, place in (
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        ("AWS_CONFIG_FILE", "~/.aws/config"),
    ):
        path = Path(os.environ.get(variable) or place).expanduser()
        with suppress(OSError, UnicodeDecodeError):  # boto3 reports this
            if "aws_secret_access_key" in path.read_text():
                refuse_open(path)


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


def error_code(error: BaseException) -> str:
    """AWS's code of a refusal; "" for any other exception."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, exceptions.ClientError) else ""


def _refused(error: exceptions.ClientError, in_region: str) -> ProviderError:
    code, text = error_code(error) or "unknown", error.response.get("Error", {}).get("Message", "")
    about = error.response.get("ResponseMetadata", {})
    status, message = about.get("HTTPStatusCode", 0), f"{error.operation_name}: {code}: {text}"
    meaning = CODES.get(code)
    if status == 429 and meaning is None:
        meaning = CODES["Throttling"]
    if (code == "AuthFailure" and "not yet" in text) or "Signature expired" in text:
        meaning = CODES["RequestExpired"]
    if meaning is None:
        return UnavailableError(message) if status >= 500 else ProviderError(message)
    if meaning.kind is AuthError and in_region:
        hint = f"enable it: aws account enable-region --region-name {in_region}; or remove it from `regions`"
        return RegionDisabledError(f"{in_region} does not accept this account: {message}", hint=hint)
    if meaning.kind is PermissionDeniedError:
        denied = re.search(r"not authorized to perform: ([a-z0-9]+:[A-Za-z]+)", text)  # a launch needs others, too
        action = denied[1] if denied else meaning.action or _action(error.operation_name)
        hint = f"`tradewind doctor --policy aws` prints the whole policy; missing statement: {statement_of(action)}"
        return PermissionDeniedError(message, action=action, hint=hint)
    after_s = retry_after_s(about.get("HTTPHeaders", {})) if meaning.kind is ThrottledError else None
    return meaning.kind(message, hint=meaning.hint, scope=meaning.scope, retry_after_s=after_s)


def _action(operation: str) -> str:
    """The permission that an operation needs first."""
    return _ACTIONS.get(operation, f"ec2:{operation}")


_ACTIONS = {
    **{name: f"pricing:{name}" for name in ("GetProducts", "DescribeServices", "ListPriceLists", "GetAttributeValues")},
    "GetCallerIdentity": "sts:GetCallerIdentity",
    "GetParameter": "ssm:GetParameter",
    "ListServiceQuotas": "servicequotas:ListServiceQuotas",
    **{
        name: f"s3:{name}"
        for name in (
            *("CreateBucket", "DeleteBucket", "GetBucketTagging", "GetBucketLocation"),
            *("GetBucketVersioning", "PutBucketVersioning"),
        )
    },
    "GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
    "ListObjectsV2": "s3:ListBucket",
}
