"""IAM in front of a loopback AWS: who signed a request, and whether the policy of that user allows all of it.

moto checks the key, the signature, the action and the resource, by the code that `POST /moto-api/reset-auth` turns on.
It knows neither the conditions of EC2's actions nor which further permissions a call needs; both are here, after AWS's
documentation (docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html, .../list_amazons3.html).
Of S3, only what is done to buckets, without signatures (tests/clouds/guarded_s3.py checks those).
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.iam.access_control import IAMRequest
from moto.iam.models import iam_backends
from werkzeug.exceptions import HTTPException

from tests.clouds import s3
from tests.clouds.aws import error
from tests.clouds.server import Cloud, Request, Response

ACCOUNT = "123456789012"
_PARTS = ("VpcId", "SubnetId", "InternetGatewayId", "GroupId", "LaunchTemplateId")
_SPOT, _FLEETS = "spot.amazonaws.com", "ec2fleet.amazonaws.com"
_OF_BUCKETS = {
    "GET": "s3:ListBucket",
    "PUT": "s3:CreateBucket",
    "DELETE": "s3:DeleteBucket",
    "GET tagging": "s3:GetBucketTagging",
    "GET location": "s3:GetBucketLocation",
    "GET publicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "PUT publicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "GET versioning": "s3:GetBucketVersioning",
    "PUT versioning": "s3:PutBucketVersioning",
    "GET lifecycle": "s3:GetLifecycleConfiguration",
    "PUT lifecycle": "s3:PutLifecycleConfiguration",
}
"""Method and subresource -> the permission of a request about a bucket."""
_SUBRESOURCES = {each.partition(" ")[2] for each in _OF_BUCKETS}
_DENIED = (
    "User: {user} is not authorized to perform: {action} on resource: {resource} because no identity-based policy "
)
_DENIED += "allows the {action} action"


@dataclass(frozen=True)
class Demand:
    """One permission that a request needs, and what conditions of a policy may ask about it."""

    action: str
    resource: str
    context: Mapping[str, str]


@dataclass
class User:
    """A new user with this policy and a key of its own. `expired`: the session that the key belongs to is over.

    `demanded` is every permission that its requests needed. The account has no roles for spot machines and fleets
    yet: the first one makes it.
    """

    policy: Mapping[str, Any]
    expired: bool = False
    has_spot_role: bool = False
    has_fleet_role: bool = False
    demanded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        backend, self.name = iam_backends[ACCOUNT]["aws"], f"tradewind-{secrets.token_hex(6)}"
        backend.create_user("us-east-1", self.name)
        key = backend.create_access_key(self.name)
        self.environment = {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key}
        self.allow(self.policy)

    @property
    def arn(self) -> str:
        return f"arn:aws:iam::{ACCOUNT}:user/{self.name}"

    def allow(self, policy: Mapping[str, Any]) -> None:
        """Give the user this policy instead."""
        self.policy = policy
        plain = [{key: value for key, value in each.items() if key != "Condition"} for each in policy["Statement"]]
        document = json.dumps({"Version": "2012-10-17", "Statement": plain})
        iam_backends[ACCOUNT]["aws"].put_user_policy(self.name, "tradewind", document)


class Enforced:
    """A cloud that only this user may use. `tags_of` are the tags of a machine, or of a part of a
    network, by its id."""

    def __init__(self, cloud: Cloud, user: User, tags_of: Any = lambda _: {}) -> None:
        self.cloud, self.user, self._tags_of = cloud, user, tags_of
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Response:
        if "Authorization" not in request.headers or (request.path != "/" and _service(request) != "s3"):
            return self.cloud(request)  # a public file
        if self.user.expired:
            return _refused(request, "ExpiredToken", "The security token included in the request is expired", 403)
        with self._lock:
            for demand in self._demands(request):
                if refused := self._refusal(request, demand):
                    return refused
        if request.form.get("DryRun") == "true":
            return error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        return self.cloud(request)

    def _refusal(self, request: Request, demand: Demand) -> Response | None:
        """None if the user may do this."""
        self.user.demanded.append(demand.action)
        headers = {name.title(): value for name, value in request.headers.items()}
        try:
            form = {} if _service(request) == "s3" else request.form
            asked = IAMRequest(ACCOUNT, request.method, "/", form, request.body, headers, "")
            if _service(request) != "s3":
                asked.check_signature()
        except HTTPException:
            code = "AuthFailure" if _service(request) == "ec2" else "InvalidClientTokenId"
            return _refused(request, code, "AWS was not able to validate the provided access credentials", 401)
        asked._action = demand.action
        try:
            asked.check_action_permitted(demand.resource)
        except HTTPException:
            permitted = False
        else:
            permitted = demand.action == "sts:GetCallerIdentity" or self._fulfilled(demand)
        if permitted:
            return None
        if demand.action == "iam:CreateServiceLinkedRole":
            words = "The provided credentials do not have permission to create the service-linked role for EC2 Spot"
            return error("AuthFailure.ServiceLinkedRoleCreationNotPermitted", words, 403)
        words = _DENIED.format(user=self.user.arn, action=demand.action, resource=demand.resource)
        code = "UnauthorizedOperation" if _service(request) == "ec2" else "AccessDeniedException"
        return _refused(request, code, words, 403)

    def _fulfilled(self, demand: Demand) -> bool:
        """Whether a statement for this action has no condition, or one that is met. Only what this project writes is
        understood."""
        for statement in self.user.policy["Statement"]:
            if demand.action not in statement["Action"]:
                continue
            conditions = statement.get("Condition", {})
            assert conditions.keys() <= {"StringLike", "StringEquals"}
            if all(
                any(re.fullmatch(each.replace("*", ".*"), demand.context.get(key, "")) for each in _several(wanted))
                and key in demand.context
                for tests in conditions.values()
                for key, wanted in tests.items()
            ):
                return True
        return False

    def _demands(self, request: Request) -> Iterator[Demand]:
        service = _service(request)
        if service == "s3":
            yield from _of_s3(request)
            return
        form = request.form
        action = form.get("Action") or request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        machines = [value for key, value in form.items() if re.match(r"(InstanceId|ResourceId)\.\d", key)]
        if machines and not action.startswith("Describe"):
            for each in machines:
                tags = {f"aws:ResourceTag/{key}": value for key, value in self._tags_of(each).items()}
                yield Demand(f"{service}:{action}", f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/{each}", tags)
            return
        parts = [form[key] for key in _PARTS if key in form]
        if parts and not action.startswith(("Create", "Describe")):
            for each in parts:
                tags = {f"aws:ResourceTag/{key}": value for key, value in self._tags_of(each).items()}
                yield Demand(f"{service}:{action}", "*", tags)
            return
        yield Demand(f"{service}:{action}", "*", {})
        if any(key.startswith("TagSpecification") for key in form):
            yield Demand("ec2:CreateTags", "*", {"ec2:CreateAction": action})
        if action == "CreateFleet":
            yield Demand("ec2:RunInstances", "*", {})
            yield Demand("ec2:CreateTags", "*", {"ec2:CreateAction": "RunInstances"})
            if not self.user.has_fleet_role:
                yield Demand("iam:CreateServiceLinkedRole", "*", {"iam:AWSServiceName": _FLEETS})
                self.user.has_fleet_role = True
        kind = form.get("InstanceMarketOptions.MarketType") or form.get(
            "TargetCapacitySpecification.DefaultTargetCapacityType"
        )
        if kind == "spot" and not self.user.has_spot_role:
            yield Demand("iam:CreateServiceLinkedRole", "*", {"iam:AWSServiceName": _SPOT})
            self.user.has_spot_role = form.get("DryRun") != "true"


def _of_s3(request: Request) -> Iterator[Demand]:
    bucket, part = request.path.strip("/"), " ".join(sorted(request.query.keys() & _SUBRESOURCES))
    yield Demand(_OF_BUCKETS[f"{request.method} {part}".strip()], f"arn:aws:s3:::{bucket}", {})
    if b"<Tags>" in request.body:
        yield Demand("s3:TagResource", f"arn:aws:s3:::{bucket}", {})


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _service(request: Request) -> str:
    return request.headers["Authorization"].partition("Credential=")[2].split("/")[3]


def _refused(request: Request, code: str, message: str, status: int) -> Response:
    """In the service's own protocol."""
    if "X-Amz-Target" in request.headers:
        body = json.dumps({"__type": code, "message": message})
        return Response(400, body.encode(), "application/x-amz-json-1.1")
    if _service(request) == "sts":
        words = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
        body = f'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{words}</ErrorResponse>'
        return Response(status, body.encode(), "text/xml")
    if _service(request) == "s3":
        return s3.refusal(status, "AccessDenied", message)
    return error(code, message, status)
