"""Launches of any of several types in any of several zones: an EC2 Fleet of the type `instant`.

A fleet takes what it launches from a launch template. Ours is also the record of the launch: it is made first, under a
name that follows from the launch token, and carries the fleet's id once that is known. The fleet's client token is that
of the launch with the template's id, so that a repeated call gives the same fleet, and a call after a refusal, which
removes the template, asks anew. Templates cost nothing; they are removed two hours after the launch, a day after it if
its fleet is not known, and with the networks. Nothing that was asked for here is ever launched in another way: the
token of a fleet is unknown to RunInstances, so there could be two machines.
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
"""Of a launch whose fleet is not known: without its template, a repeated call would launch again."""
ONE_BY_ONE_S = 3600.0
"""For so long after a refusal of fleets, launches name one offer each."""
Place = tuple[str, str]
"""A subnet and an instance type."""
SPOT_STRATEGY, ON_DEMAND_STRATEGY = "price-capacity-optimized", "prioritized"
"""For machines at about the same price: those that are least likely to be taken away; the first in our order."""


NEEDED = (
    "ec2:DescribeLaunchTemplates",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateFleet",
    "iam:CreateServiceLinkedRole",
)
"""Permissions without which nothing is launched by a fleet."""


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A launch in a region: `data` is that of its template, `overrides` are the subnets and types, best first."""

    spec: LaunchSpec
    region: str
    data: Mapping[str, Any]
    overrides: Sequence[Mapping[str, Any]]
    spot: bool


@dataclass(frozen=True, slots=True)
class Record:
    """The template of a launch: its id, and that of its fleet ("": not known)."""

    template: str
    fleet: str


class Fleets:
    """Methods raise botocore's exceptions and errors of ours."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._refused_s: float | None = None

    @property
    def taken(self) -> bool:
        """False for a while after the account could not have a fleet."""
        return self._refused_s is None or self._clock.monotonic_s() - self._refused_s > ONE_BY_ONE_S

    def launch(self, request: FleetRequest) -> tuple[Place, list[str]] | None:
        """Launch all machines by one of the overrides: (its subnet and type, EC2's ids in a fixed order). None if the
        token has launched already, by other overrides. Raises NotTogetherError."""
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
            with suppress(Exception):  # a repeated call finds it too
                tag = {"Key": FLEET, "Value": fleet}
                self._connections.client("ec2", region).create_tags(Resources=[record.template], Tags=[tag])
        used = (each["LaunchTemplateAndOverrides"]["Overrides"] for each in found["Instances"])
        (place,) = {(str(each["SubnetId"]), str(each["InstanceType"])) for each in used}
        return place, ids

    def machines(self, token: str, region: str) -> list[str] | None:
        """EC2's ids of the machines that a launch with this token has made; None if there was none, or if it is not
        known yet."""
        record = self._record(token, region)
        if record is None or not record[0].fleet:
            return None
        rows = self._fleet(region, record[0].fleet).get("Instances", [])
        return [each for group in rows for each in group["InstanceIds"]]

    def tidy(self, install: str, region: str) -> None:
        """Remove the templates of launches that were made long ago."""
        ec2, now_s = self._connections.client("ec2", region), self._clock.now_ms() / 1000
        own = [{"Name": f"tag:{INSTALL}", "Values": [install]}]
        for page in pages_of(ec2, "describe_launch_templates", Filters=own):
            for row in page["LaunchTemplates"]:
                kept_s = KEPT_S if tags_of(row).get(FLEET) else UNRESOLVED_KEPT_S
                if now_s - row["CreateTime"].timestamp() > kept_s:
                    self._remove(region, row["LaunchTemplateId"])

    def _recorded(self, request: FleetRequest) -> tuple[Record, bool]:
        """The record of a launch, made if there is none, and whether it is new: then nothing was launched. Raises
        ConflictError for another launch with this token, and NotTogetherError."""
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
            raise UnavailableError(f"EC2 does not show yet what it knows of the token {spec.token}")
        record, before = found
        if before != spec.fingerprint:
            raise ConflictError("the token was used for another request", hint="use a new token for a new request")
        return record, False

    def _made(self, request: FleetRequest) -> Record | None:
        """A new record of a launch; None if there is one."""
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
        """Raise what it means that EC2 takes no fleet. An earlier call may have launched one all the same."""
        if not new:
            raise UnavailableError(
                f"EC2 takes no fleet now, but may have taken one for this launch: {error}"
            ) from error
        with suppress(Exception):  # else it is removed a day later
            self._remove(region, record.template)
        raise _not_together(error) from error

    def _record(self, token: str, region: str) -> tuple[Record, str] | None:
        """The record of a launch, and the fingerprint of its request."""
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
        """What a fleet has launched, and why it has not launched the rest."""
        try:
            found = self._connections.client("ec2", region).describe_fleets(FleetIds=[fleet])["Fleets"]
        except Exception as error:
            if error_code(error) in NO_FLEET:
                raise UnavailableError(f"EC2 does not show the fleet {fleet} yet") from error
            raise
        return dict(found[0]) if found else {}

    def _refused(self, region: str, record: Record, ids: Sequence[str], errors: Sequence[Mapping[str, Any]]) -> None:
        """Remove what a refused launch has left, so that the next one asks anew, and raise why it was refused."""
        if ids:  # it was to launch all or none
            with _accepted():
                self._connections.client("ec2", region).terminate_instances(InstanceIds=list(ids))
        elif not errors:
            raise UnavailableError("EC2 does not show yet what became of a fleet")
        with suppress(Exception):  # else the next call with this token is answered with this refusal
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
    """Why a fleet has launched nothing, which is said of all its offers: that one had no capacity, else what was said
    of each. Of different reasons, or one that is not known, only asking for one offer at a time can tell whose it is.
    """
    told: list[ProviderError] = []
    for each in errors:
        code, text = str(each.get("ErrorCode", "")), str(each.get("ErrorMessage", ""))
        meaning = CODES.get(code)
        message = f"CreateFleet: {code}: {text}"
        told.append(
            ProviderError(message) if meaning is None else meaning.kind(message, hint=meaning.hint, scope=meaning.scope)
        )
    if not told:
        return CapacityError("CreateFleet: EC2 launched too few machines", scope="zone")
    messages = "; ".join(dict.fromkeys(str(each) for each in told))
    for reason in told:
        if isinstance(reason, CapacityError):
            return CapacityError(messages, hint=reason.hint, scope=reason.scope)
    for reason in told:
        if reason.retryable:
            return reason
    first, kinds = told[0], {type(each) for each in told}
    if len(kinds) > 1 or not kinds.isdisjoint((ProviderError, PermissionDeniedError)):
        return NotTogetherError(messages, hint=first.hint)
    return first


@contextmanager
def _accepted() -> Iterator[None]:
    """Whatever fails now, the launch may have taken effect."""
    try:
        yield
    except Exception as error:
        raise UnavailableError(f"what became of a fleet cannot be looked up: {error}") from error


def _not_taken(error: Exception) -> bool:
    """Whether EC2 does not know such a request, or the account may not make it."""
    known = to_provider_error(error)
    return type(known) is ProviderError or (isinstance(known, PermissionDeniedError) and known.action in NEEDED)


def _not_together(error: Exception) -> NotTogetherError:
    known = to_provider_error(error)
    return NotTogetherError(f"no fleets here: {known}", hint="" if known is None else known.hint)


def _name(token: str) -> str:
    return f"tradewind-{token}"


def _asked(request: FleetRequest, record: Record) -> dict[str, Any]:
    """All or none, of one type in one zone."""
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
