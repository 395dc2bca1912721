"""AWS's instance metadata service on loopback, version 2: what one machine can ask about itself."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from tests.clouds.machines import Machine, Start, unpacked
from tests.clouds.server import Request, Response

_TAGS = "/latest/meta-data/tags/instance/"
_LONGEST_TOKEN_S = 21_600


@dataclass
class Imds:
    """`instance` is the row that DescribeInstances shows. `interrupted_at` is what it announces, after `at_risk`, a
    recommendation to rebalance.

    `with_token` has the requests that were answered; those without a token are refused, as `HttpTokens=required` says.
    """

    instance: dict[str, Any]
    now: Callable[[], datetime]
    interrupted_at: datetime | None = None
    at_risk: datetime | None = None
    with_token: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tokens: set[str] = set()

    def notify(self, at: datetime) -> None:
        self.interrupted_at = at

    def __call__(self, request: Request) -> Response:
        answer = self._answer(request)
        date = format_datetime(self.now().replace(microsecond=0), usegmt=True)
        return Response(answer.status, answer.body, "text/plain", {"Date": date})

    def _answer(self, request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.path == "/latest/api/token":
            seconds = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            if request.method != "PUT" or not seconds.isdigit() or not 1 <= int(seconds) <= _LONGEST_TOKEN_S:
                return Response(400)
            self._tokens.add(token := secrets.token_urlsafe(24))
            return Response(body=token.encode())
        if headers.get("x-aws-ec2-metadata-token") not in self._tokens:
            return Response(401)
        self.with_token.append(request.path)
        found = self._found(request.path)
        return Response(404) if found is None else Response(body=found.encode())

    def _found(self, path: str) -> str | None:
        if path == "/latest/meta-data/spot/instance-action":
            if self.interrupted_at is None:
                return None
            return json.dumps({"action": "terminate", "time": _text(self.interrupted_at)})
        if path == "/latest/meta-data/events/recommendations/rebalance":
            return None if self.at_risk is None else json.dumps({"noticeTime": _text(self.at_risk)})
        if path == "/latest/dynamic/instance-identity/document":
            here = self.instance["Placement"]["AvailabilityZone"]
            return json.dumps(
                {
                    "instanceId": self.instance["InstanceId"],
                    "instanceType": self.instance["InstanceType"],
                    "availabilityZone": here,
                    "pendingTime": _text(self.instance["LaunchTime"]),
                }
            )
        if path == "/latest/meta-data/instance-id":
            return str(self.instance["InstanceId"])
        if path.startswith(_TAGS) and self.instance["MetadataOptions"].get("InstanceMetadataTags") == "enabled":
            tags = {tag["Key"]: tag["Value"] for tag in self.instance["Tags"]}
            return tags.get(path.removeprefix(_TAGS))
        return None


def machines_of(start: Start, now: Callable[[], datetime]) -> Callable[[dict[str, Any], bytes], Machine]:
    """What `Ec2` starts machines with."""
    return lambda row, user_data: start(row["InstanceId"], unpacked(user_data), Imds(row, now))


def asks_for_machines(request: Request) -> bool:
    """Whether a request to AWS is not one to its storage or its token service."""
    signed = next((value for name, value in request.headers.items() if name.lower() == "authorization"), "")
    return any(f"/{service}/aws4_request" in signed for service in ("ec2", "ssm", "servicequotas", "pricing"))


def _text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
