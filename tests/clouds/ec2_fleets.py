"""Launch templates and instant fleets of the loopback EC2.

Not modelled: versions of templates, fleets of other types, weights, and fleets with more than one template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from tests.clouds.aws import error
from tests.clouds.server import Response

Row = dict[str, Any]
Launch = Callable[[str, Row], list[str]]
"""Launches the machines of a request like RunInstances in a region, or raises Refused."""
_PLACED = ("ClientToken", "MinCount", "MaxCount", "Placement", "InstanceMarketOptions", "LaunchTemplate")


class Refused(Exception):
    """An error as EC2 answers it."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message = code, message
        self.response: Response = error(code, message, status)


@dataclass
class Fleets:
    """`tells_machines`: the answer to a repeated CreateFleet names its machines. `zone_of` is the zone ID of a subnet.
    `invalid`: EC2 does not take such requests at all."""

    now: Callable[[], datetime]
    chance: Callable[[], Random]
    zone_of: Callable[[str, str], str]
    launch: Launch
    tells_machines: bool = True
    invalid: bool = False
    templates: dict[str, Row] = field(default_factory=dict)
    fleets: dict[str, Row] = field(default_factory=dict)
    _asked: dict[tuple[str, str], tuple[Row, str]] = field(default_factory=dict)

    def tags(self, thing: str) -> dict[str, str]:
        """The tags of a template."""
        return {each["Key"]: each["Value"] for each in self.templates[thing]["row"]["Tags"]}

    def tag(self, thing: str, tags: list[Mapping[str, str]]) -> None:
        new = self.tags(thing) | {each["Key"]: each["Value"] for each in tags}
        self.templates[thing]["row"]["Tags"] = [{"Key": key, "Value": value} for key, value in new.items()]

    def left(self, region: str) -> list[str]:
        """The templates of a region."""
        return sorted(name for name, each in self.templates.items() if each["region"] == region)

    # --- calls ---

    def create_template(self, region: str, asked: Row) -> Row:
        name, data = asked["LaunchTemplateName"], asked["LaunchTemplateData"]
        if wrong := [each for each in _PLACED if each in data]:
            raise Refused("InvalidLaunchTemplateData", f"{wrong[0]} is not allowed here")
        if any(
            each["row"]["LaunchTemplateName"] == name for each in self.templates.values() if each["region"] == region
        ):
            code = "InvalidLaunchTemplateName.AlreadyExistsException"
            raise Refused(code, "Launch template name already in use.")
        number = f"lt-0{self.chance().getrandbits(64):016x}"
        tags = [tag for each in asked["TagSpecifications"] for tag in each["Tags"]]
        row = {"LaunchTemplateId": number, "LaunchTemplateName": name, "CreateTime": self.now(), "Tags": tags}
        row |= {"DefaultVersionNumber": 1, "LatestVersionNumber": 1}
        self.templates[number] = {"region": region, "row": row, "data": data}
        return {"LaunchTemplate": row}

    def describe_templates(self, region: str, asked: Row) -> Row:
        rows = [each["row"] for each in self.templates.values() if each["region"] == region]
        if names := asked.get("LaunchTemplateNames"):
            rows = [row for row in rows if row["LaunchTemplateName"] in names]
            if not rows:
                code = "InvalidLaunchTemplateName.NotFoundException"
                raise Refused(code, "At least one of the launch templates specified in the request does not exist.")
        for only in asked.get("Filters", []):
            key = only["Name"].removeprefix("tag:")
            rows = [row for row in rows if self.tags(row["LaunchTemplateId"]).get(key) in only["Values"]]
        return {"LaunchTemplates": rows}

    def delete_template(self, region: str, asked: Row) -> Row:
        return {"LaunchTemplate": self._template(region, asked["LaunchTemplateId"], remove=True)["row"]}

    def create_fleet(self, region: str, asked: Row) -> Row:
        if self.invalid:
            raise Refused("InvalidFleetConfig", "This account may not have such fleets.")
        place = region, asked["ClientToken"]
        if place in self._asked:
            before, number = self._asked[place]
            if before != asked:
                raise Refused("IdempotentParameterMismatch", "The client token was used with other parameters.")
            fleet = self.fleets[number]
            return fleet if self.tells_machines else {"FleetId": number}
        (config,) = asked["LaunchTemplateConfigs"]
        template = self._template(region, config["LaunchTemplateSpecification"]["LaunchTemplateId"])
        wanted, spot = asked["TargetCapacitySpecification"], "SpotOptions" in asked
        options = asked["SpotOptions" if spot else "OnDemandOptions"]
        count = wanted["TotalTargetCapacity"]
        assert asked["Type"] == "instant"
        assert wanted["DefaultTargetCapacityType"] == ("spot" if spot else "on-demand")
        assert options["SingleAvailabilityZone"]
        assert options["SingleInstanceType"]
        assert options["MinTargetCapacity"] == count
        overrides = sorted(config["Overrides"], key=lambda each: each["Priority"])
        if spot:  # EC2 weighs prices and capacity by itself
            overrides = self.chance().sample(overrides, len(overrides))
        number = f"fleet-{self.chance().getrandbits(128):032x}"
        made: Row = {"FleetId": number, "Instances": [], "Errors": []}
        lifecycle = "spot" if spot else "on-demand"
        for override in overrides:
            about = {"LaunchTemplateAndOverrides": {"Overrides": override}, "Lifecycle": lifecycle}
            try:
                ids = self.launch(region, self._request(region, template["data"], override, number, count, spot=spot))
            except Refused as refused:
                made["Errors"].append({**about, "ErrorCode": refused.code, "ErrorMessage": refused.message})
            else:
                made["Instances"] = [{**about, "InstanceIds": ids, "InstanceType": override["InstanceType"]}]
                break
        self.fleets[number] = made
        self._asked[place] = asked, number
        return made

    def describe_fleets(self, _: str, asked: Row) -> Row:
        return {"Fleets": [self.fleets[each] for each in asked["FleetIds"] if each in self.fleets]}

    def _request(self, region: str, data: Row, override: Row, number: str, count: int, *, spot: bool) -> Row:
        (card,), zone_id = data["NetworkInterfaces"], self.zone_of(region, override["SubnetId"])
        if not zone_id:
            raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{override['SubnetId']}' does not exist")
        asked = {
            **data,
            "ClientToken": f"{number}-1",
            "MinCount": count,
            "MaxCount": count,
            "InstanceType": override["InstanceType"],
            "Placement": {"AvailabilityZoneId": zone_id},
            "NetworkInterfaces": [{**card, "SubnetId": override["SubnetId"]}],
        }
        return asked | ({"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {})

    def _template(self, region: str, number: str, *, remove: bool = False) -> Row:
        found = self.templates.get(number)
        if found is None or found["region"] != region:
            raise Refused("InvalidLaunchTemplateId.NotFound", "The specified launch template does not exist.")
        if remove:
            del self.templates[number]
        return found
