"""Launches that accept several types and zones: an EC2 Fleet of the type `instant`.

A fleet takes what it launches from a launch template. Our template is also the record of the launch: it is created
first, under a name derived from the launch token, and is tagged with the fleet's id once that is known. The fleet's
client token is the launch token plus the template's id. A repeated call therefore returns the same fleet. A refusal
removes the template, so a call after it is a new request. Templates cost nothing; they are removed two hours after the
launch (a day if the fleet is unknown), and together with the networks. A launch that was requested here is never
repeated in another way: RunInstances does not know the token of a fleet, so there could be two machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from providers.aws.calls import INSTALL
from providers.aws.codes import CODES, NO_FLEET, NO_TEMPLATE, TEMPLATE_EXISTS, USED_TOKEN
from providers.aws.regions import pages_of
from providers.aws.rows import REQUEST, TOKEN, tags_of
from providers.aws.session import Connections, error_code, to_provider_error
from providers.base import LaunchSpec
from providers.clock import Clock
from providers.errors import (
    CapacityError,
    ConflictError,
    NotTogetherError,
    PermissionDeniedError,
    ProviderError,
    UnavailableError,
)

FLEET = "tradewind-fleet"
"""The tag of a template with the id of its fleet."""
KEPT_S = 2 * 3600.0
UNRESOLVED_KEPT_S = 24 * 3600.0
"""For a launch whose fleet is unknown: without its template, a repeated call would launch again."""
ONE_BY_ONE_S = 3600.0
"""For this long after AWS refuses a fleet, each launch names only one offer."""
Place = tuple[str, str]
"""A subnet and an instance type."""
SPOT_STRATEGY, ON_DEMAND_STRATEGY = "price-capacity-optimized", "prioritized"
"""Among machines at about the same price, AWS takes those least likely to be preempted, or the first of our list."""


NEEDED = (
    "ec2:DescribeLaunchTemplates",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateFleet",
    "iam:CreateServiceLinkedRole",
)
"""Permissions that a launch by a fleet needs."""


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A launch in a region: `data` is the template's data, `overrides` are the subnets and types, best first."""

    spec: LaunchSpec
    region: str
    data: Mapping[str, Any]
    overrides: Sequence[Mapping[str, Any]]
    spot: bool


@dataclass(frozen=True, slots=True)
class Record:
    """The template of a launch: its id, and the id of its fleet ("": unknown)."""

    template: str
    fleet: str


class Fleets:
    """Methods raise botocore's exceptions and ProviderErrors."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._refused_s: float | None = None

    @property
    def taken(self) -> bool:
        """False for a while after AWS refused the account a fleet."""
        return self._refused_s is None or self._clock.monotonic_s() - self._refused_s > ONE_BY_ONE_S

    def launch(self, request: FleetRequest) -> tuple[Place, list[str]] | None:
        """Launch all machines with one of the overrides. Returns its subnet and type, and EC2's ids in a fixed order.
        None if the token has already launched with other overrides. Raises NotTogetherError."""
        try:
            return self._launched(request)
        except NotTogetherError:
            self._refused_s = self._clock.monotonic_s()
            raise

    def _launched(self, request: FleetRequest) -> tuple[Place, list[str]] | None:
        spec, region = request.spec, request.region
        record, new = self._recorded(request)
        fleet = record.fleet
        found: Mapping[str, Any] = {}
        if not fleet:
            try:
                found = self._once(region).create_fleet(**_asked(request, record))
            except Exception as error:
                if not new and error_code(error) in USED_TOKEN:
                    return None
                if _not_taken(error):
                    self._not_asked(region, record, error, new=new)
                raise
            fleet = str(found["FleetId"])
        if not found.get("Instances") and not found.get("Errors"):
            with _accepted():
                found = self._fleet(region, fleet)
        ids = sorted(each for group in found.get("Instances", []) for each in group["InstanceIds"])
        if len(ids) != spec.count:
            self._refused(region, record, ids, found.get("Errors", []))
        if not record.fleet:
            with suppress(Exception):  # a repeated call also finds it
                tag = {"Key": FLEET, "Value": fleet}
                self._connections.client("ec2", region).create_tags(Resources=[record.template], Tags=[tag])
        used = (each["LaunchTemplateAndOverrides"]["Overrides"] for each in found["Instances"])
        (place,) = {(str(each["SubnetId"]), str(each["InstanceType"])) for each in used}
        return place, ids

    def machines(self, token: str, region: str) -> list[str] | None:
        """EC2's ids of the machines that a launch with this token has made; None if there was no such launch, or if the
        machines are not known yet."""
        record = self._record(token, region)
        if record is None or not record[0].fleet:
            return None
        rows = self._fleet(region, record[0].fleet).get("Instances", [])
        return [each for group in rows for each in group["InstanceIds"]]

    def tidy(self, install: str, region: str) -> None:
        """Remove the templates of old launches."""
        ec2, now_s = self._connections.client("ec2", region), self._clock.now_ms() / 1000
        own = [{"Name": f"tag:{INSTALL}", "Values": [install]}]
        for page in pages_of(ec2, "describe_launch_templates", Filters=own):
            for row in page["LaunchTemplates"]:
                kept_s = KEPT_S if tags_of(row).get(FLEET) else UNRESOLVED_KEPT_S
                if now_s - row["CreateTime"].timestamp() > kept_s:
                    self._remove(region, row["LaunchTemplateId"])

    def _recorded(self, request: FleetRequest) -> tuple[Record, bool]:
        """The record of a launch, created if there is none, and whether it is new (then nothing was launched before).
        Raises ConflictError for another launch with this token, and NotTogetherError."""
        spec, region = request.spec, request.region
        try:
            found = self._record(spec.token, region)
            if found is None and (made := self._made(request)) is not None:
                return made, True
        except Exception as error:
            if _not_taken(error):
                raise _not_together(error) from error
            raise
        found = found or self._record(spec.token, region)
        if found is None:
            raise UnavailableError(f"EC2 does not yet show the launch with the token {spec.token}")
        record, before = found
        if before != spec.fingerprint:
            raise ConflictError("the token was used for another request", hint="use a new token for a new request")
        return record, False

    def _made(self, request: FleetRequest) -> Record | None:
        """A new record of a launch; None if one exists."""
        spec = request.spec
        tags = {INSTALL: spec.tags.get(INSTALL, ""), REQUEST: spec.fingerprint}
        tagged = [{"Key": key, "Value": value} for key, value in tags.items()]
        try:
            made = self._once(request.region).create_launch_template(
                LaunchTemplateName=_name(spec.token),
                LaunchTemplateData=request.data,
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": tagged}],
            )
        except Exception as error:
            if error_code(error) not in TEMPLATE_EXISTS:
                raise
            return None
        return Record(str(made["LaunchTemplate"]["LaunchTemplateId"]), "")

    def _not_asked(self, region: str, record: Record, error: Exception, *, new: bool) -> NoReturn:
        """Raise the error for EC2's refusal of fleets. An earlier call may still have launched one."""
        if not new:
            raise UnavailableError(
                f"EC2 accepts no fleet now, but may have accepted one for this launch: {error}"
            ) from error
        with suppress(Exception):  # else it is removed a day later
            self._remove(region, record.template)
        raise _not_together(error) from error

    def _record(self, token: str, region: str) -> tuple[Record, str] | None:
        """The record of a launch and the fingerprint of its request."""
        ec2 = self._connections.client("ec2", region)
        try:
            rows = ec2.describe_launch_templates(LaunchTemplateNames=[_name(token)])["LaunchTemplates"]
        except Exception as error:
            if error_code(error) in NO_TEMPLATE:
                return None
            raise
        for row in rows:
            tags = tags_of(row)
            return Record(str(row["LaunchTemplateId"]), tags.get(FLEET, "")), tags.get(REQUEST, "")
        return None

    def _fleet(self, region: str, fleet: str) -> Mapping[str, Any]:
        """The machines that a fleet has launched, and why it has not launched the rest."""
        try:
            found = self._connections.client("ec2", region).describe_fleets(FleetIds=[fleet])["Fleets"]
        except Exception as error:
            if error_code(error) in NO_FLEET:
                raise UnavailableError(f"EC2 does not show the fleet {fleet} yet") from error
            raise
        return dict(found[0]) if found else {}

    def _refused(self, region: str, record: Record, ids: Sequence[str], errors: Sequence[Mapping[str, Any]]) -> None:
        """Remove what a refused launch has left, so that the next call is a new request, and raise the reason of the
        refusal."""
        if ids:  # the fleet should have launched all or none
            with _accepted():
                self._connections.client("ec2", region).terminate_instances(InstanceIds=list(ids))
        elif not errors:
            raise UnavailableError("EC2 does not yet show the result of a fleet")
        with suppress(Exception):  # otherwise the next call with this token gets the same refusal
            self._remove(region, record.template)
        raise refusal(errors)

    def _remove(self, region: str, template: str) -> None:
        try:
            self._connections.client("ec2", region).delete_launch_template(LaunchTemplateId=template)
        except Exception as error:
            if error_code(error) not in NO_TEMPLATE:
                raise

    def _once(self, region: str) -> Any:
        return self._connections.client("ec2", region, once=True)


def refusal(errors: Sequence[Mapping[str, Any]]) -> ProviderError:
    """Why a fleet has launched nothing, as one error for all its offers: no capacity if any offer had none, otherwise
    the reason that they share. If reasons differ or are unknown, only requests for one offer at a time can tell them
    apart.
    """
    reasons: list[ProviderError] = []
    for each in errors:
        code, text = str(each.get("ErrorCode", "")), str(each.get("ErrorMessage", ""))
        meaning = CODES.get(code)
        message = f"CreateFleet: {code}: {text}"
        reasons.append(
            ProviderError(message) if meaning is None else meaning.kind(message, hint=meaning.hint, scope=meaning.scope)
        )
    if not reasons:
        return CapacityError("CreateFleet: EC2 launched too few machines", scope="zone")
    messages = "; ".join(dict.fromkeys(str(each) for each in reasons))
    for reason in reasons:
        if isinstance(reason, CapacityError):
            return CapacityError(messages, hint=reason.hint, scope=reason.scope)
    for reason in reasons:
        if reason.retryable:
            return reason
    first, kinds = reasons[0], {type(each) for each in reasons}
    if len(kinds) > 1 or not kinds.isdisjoint((ProviderError, PermissionDeniedError)):
        return NotTogetherError(messages, hint=first.hint)
    return first


@contextmanager
def _accepted() -> Iterator[None]:
    """Whatever fails from here on, the launch may have taken effect."""
    try:
        yield
    except Exception as error:
        raise UnavailableError(f"the result of a fleet cannot be looked up: {error}") from error


def _not_taken(error: Exception) -> bool:
    """Whether EC2 does not know this kind of request, or the account may not make it."""
    known = to_provider_error(error)
    return type(known) is ProviderError or (isinstance(known, PermissionDeniedError) and known.action in NEEDED)


def _not_together(error: Exception) -> NotTogetherError:
    known = to_provider_error(error)
    return NotTogetherError(f"fleets are not available here: {known}", hint="" if known is None else known.hint)


def _name(token: str) -> str:
    return f"tradewind-{token}"


def _asked(request: FleetRequest, record: Record) -> dict[str, Any]:
    """All or none, in one zone and of one type."""
    spec, spot = request.spec, request.spot
    together = {"SingleInstanceType": True, "SingleAvailabilityZone": True, "MinTargetCapacity": spec.count}
    kind = "spot" if spot else "on-demand"
    capacity = {"TotalTargetCapacity": spec.count, "DefaultTargetCapacityType": kind}
    options: dict[str, Any] = {"OnDemandOptions": {"AllocationStrategy": ON_DEMAND_STRATEGY, **together}}
    if spot:
        ends = {"InstanceInterruptionBehavior": "terminate"}
        options = {"SpotOptions": {"AllocationStrategy": SPOT_STRATEGY, **ends, **together}}
    template = {"LaunchTemplateId": record.template, "Version": "1"}
    tags = [{"Key": INSTALL, "Value": spec.tags.get(INSTALL, "")}, {"Key": TOKEN, "Value": spec.token}]
    return {
        "Type": "instant",
        "ClientToken": f"{spec.token[:40]}-{record.template}",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": list(request.overrides)}],
        "TargetCapacitySpecification": capacity,
        "TagSpecifications": [{"ResourceType": "fleet", "Tags": tags}],
        **options,
    }
