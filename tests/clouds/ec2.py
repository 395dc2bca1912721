"""EC2 on loopback, as far as machines go: their requests, states, tags, spot requests and what they cost.

Requests and answers are in EC2's own protocol: botocore's model of the service says what each may contain, and moto's
code reads and writes it. moto's own machines are not used: they have no idempotency, capacity, lag or reasons for an
end, and run nothing. What happens inside a machine is `Machine`'s business.

Times are those of `clock`. Networks are moto's (tests/clouds/ec2_networks.py). Not modelled: volumes, images' contents,
IAM, stopping, hibernating. Fleets and their templates: tests/clouds/ec2_fleets.py.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.parse import EC2QueryParser
from moto.core.serialize import EC2Serializer
from moto.core.utils import get_service_model

from providers.clock import Clock
from providers.money import cost_nano_usd, usd
from tests.clouds.aws import AwsCloud, error, signed_region
from tests.clouds.ec2_fleets import Fleets, Refused
from tests.clouds.ec2_networks import ACTIONS, Networks
from tests.clouds.machines import Machine
from tests.clouds.present import Present
from tests.clouds.server import Request, Response

USER_DATA_BYTES = 16 << 10
FORGETS = timedelta(hours=1, minutes=5)
NOTICE = timedelta(minutes=2)
IMAGE, PARAMETER = "ami-0123456789abcdef0", "/aws/service/test/latest/ami-id"
ROOT_DEVICE, IMAGE_GB = "/dev/sda1", 8
ALIVE = ("pending", "running", "shutting-down")
_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
QUOTAS = {
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances": (r"[acdhimrtz]\d", False),
    "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests": (r"[acdhimrtz]\d", True),
    "Running On-Demand G and VT instances": (r"(g|vt)\d", False),
    "All G and VT Spot Instance Requests": (r"(g|vt)\d", True),
    "Running On-Demand P instances": (r"p\d", False),
    "All P4, P3 and P2 Spot Instance Requests": (r"p[432]", True),
}
"""Name -> (the instance types that count against it, whether spot)."""
_TOKEN = re.compile(r"[!-~]{1,64}")

Row = dict[str, Any]


@dataclass
class Instance:
    """One machine: the row that describes it, and the exact times of its life, by which the cloud bills."""

    row: Row
    region: str
    machine: Machine
    shown_at: datetime
    card: Row
    request: Row | None = None
    began_at: datetime = field(init=False)
    ended_at: datetime | None = None

    def __post_init__(self) -> None:
        self.began_at = self.row["LaunchTime"]

    @property
    def id(self) -> str:
        return str(self.row["InstanceId"])

    @property
    def state(self) -> str:
        return str(self.row["State"]["Name"])

    @state.setter
    def state(self, name: str) -> None:
        self.row["State"] = {"Code": _CODES[name], "Name": name}

    @property
    def tags(self) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in self.row["Tags"]}


class Ec2:
    """`start` makes the machine of a row from its user data. `prices` is the market that knows zones and types.

    `capacity`: (type, zone ID, spot) -> machines that may run at once; unlimited where missing. `quota`: vCPUs in each
    region, by the names of QUOTAS; unlimited where missing. `lag_s`: how long a launch is not shown. `pending_s`,
    `ending_s`: how long machines take to start and to end; they are billed from the launch to the request to end them.
    """

    def __init__(
        self,
        clock: Clock,
        prices: AwsCloud,
        start: Callable[[Row, bytes], Machine],
        networks: Networks | None = None,
    ) -> None:
        self.present, self.prices, self._start = Present(clock), prices, start
        self.chance: random.Random = random.SystemRandom()
        self.capacity: dict[tuple[str, str, bool], int] = {}
        self.quota: dict[str, int] = {}
        self.denied: set[str] = set()
        self.lag_s = self.pending_s = self.ending_s = 0.0
        self.images, self.described = {IMAGE}, ""
        self.parameters = {PARAMETER: IMAGE}
        self.instances: dict[str, Instance] = {}
        self.networks = Networks() if networks is None else networks
        self.networks.cards = self._cards
        self.fleets = Fleets(self.now, lambda: self.chance, self.networks.zone_of, self._run_together)
        self._launched: dict[tuple[str, str, str], tuple[Mapping[str, Any], list[str]]] = {}
        self._model = get_service_model("ec2")

    def now(self) -> datetime:
        return self.present.now()

    # --- what tests do to it ---

    def alive(self) -> list[Instance]:
        """All machines that have not ended."""
        with self.present:
            self._pass()
            return [each for each in self.instances.values() if each.state in ALIVE]

    def announce(self, instance_id: str) -> None:
        """Give notice that a spot machine will be taken away in two minutes."""
        with self.present:
            instance = self.instances[instance_id]
            assert instance.request is not None
            instance.request["Status"] = self._status("marked-for-termination")
            instance.machine.notify(self.now() + NOTICE)

    def take(self, instance_id: str) -> None:
        """Take a spot machine away."""
        with self.present:
            instance = self.instances[instance_id]
            assert instance.request is not None
            instance.request |= {"State": "closed", "Status": self._status("instance-terminated-no-capacity")}
            instance.row["StateTransitionReason"] = "Server.SpotInstanceTermination"
            self._end(instance, "Server.SpotInstanceTermination", "Server.SpotInstanceTermination")
            instance.state = "terminated"
            instance.machine.end()

    def bill_nano_usd(self) -> int:
        """What all machines have cost: their seconds, a minute at least, at the prices of the market."""
        return sum(map(self.cost_nano_usd_of, self.instances.values()))

    def cost_nano_usd_of(self, instance: Instance) -> int:
        here, kind = self.prices.regions[instance.region], instance.row["InstanceType"]
        began_ms, ended_ms = (
            round(at.timestamp() * 1000) for at in (instance.began_at, instance.ended_at or self.now())
        )
        path = [(0, usd(here.on_demand_usd[kind]))]
        if instance.request is not None:
            zone = here.zone_ids.index(instance.row["Placement"]["AvailabilityZoneId"])
            changes = [each for each in here.changes if (each.instance_type, each.zone) == (kind, zone)]
            before = (each for each in changes if each.at_ms < ended_ms or each.at_ms <= began_ms)
            path = sorted((each.at_ms, usd(each.usd)) for each in before)  # no later price is paid for the minimum
        return cost_nano_usd(path, began_ms, max(ended_ms, began_ms + 60_000 * (instance.ended_at is not None)))

    def tags_of(self, thing: str) -> dict[str, str]:
        """The tags of a machine or a part of a network, by its id."""
        if thing.startswith("lt-"):
            return self.fleets.tags(thing) if thing in self.fleets.templates else {}
        return self.instances[thing].tags if thing in self.instances else self.networks.tags(thing)

    def end_all(self) -> None:
        for instance in self.alive():
            instance.machine.end()

    # --- the protocol ---

    def __call__(self, request: Request) -> Response:
        target = request.headers.get("X-Amz-Target", "")
        if target.endswith(".ListServiceQuotas"):
            return self._service_quotas()
        if target.endswith(".GetParameter"):
            return self._parameter(json.loads(request.body))
        form, region = request.form, signed_region(request)
        action = form.get("Action", "")
        if action in self.denied:
            return error("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)
        if action in ACTIONS:
            with self.present:
                self._pass()
                return self.networks(request)
        served = _SERVED.get(action)
        if served is None:
            return error("InvalidAction", f"The action {action} is not valid for this web service.", 400)
        operation = self._model.operation_model(action)
        asked = EC2QueryParser(operation).parse(
            {"headers": {}, "body": "", "url_params": {}, "url_path": "/", "method": "POST", "values": form}
        )
        with self.present:
            self._pass()
            try:
                answer = served(self, region, asked)
            except Refused as refused:
                return refused.response
        made = EC2Serializer(operation).serialize(answer)
        return Response(200, str(made["body"]).encode(), "text/xml;charset=UTF-8")

    def _parameter(self, body: Mapping[str, str]) -> Response:
        if (value := self.parameters.get(body["Name"])) is None:
            refusal = {"__type": "ParameterNotFound", "message": ""}
            return Response(400, json.dumps(refusal).encode(), "application/x-amz-json-1.1")
        found = {"Parameter": {"Name": body["Name"], "Type": "String", "Value": value}}
        return Response(200, json.dumps(found).encode(), "application/x-amz-json-1.1")

    def _cards(self, region: str) -> list[Row]:
        alive = [each for each in self.instances.values() if each.region == region and each.state in ALIVE]
        return [each.card for each in alive]

    def _zones(self, region: str, asked: Row) -> Row:
        rows = [
            {"ZoneId": each, "RegionName": region, "State": "available"}
            for each in self.prices.regions[region].zone_ids
        ]
        return {"AvailabilityZones": rows}

    def _images(self, _: str, asked: Row) -> Row:
        for image in asked["ImageIds"]:
            if image not in self.images:
                raise Refused("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
        device = {"DeviceName": ROOT_DEVICE, "Ebs": {"VolumeSize": IMAGE_GB}}
        return {
            "Images": [
                {
                    "ImageId": image,
                    "RootDeviceName": ROOT_DEVICE,
                    "BlockDeviceMappings": [device],
                    "Name": "an image",
                    "Description": self.described,
                }
                for image in asked["ImageIds"]
            ]
        }

    def _run(self, region: str, asked: Row) -> Row:
        here = self.prices.regions[region]
        zone_id = asked["Placement"]["AvailabilityZoneId"]
        if zone_id not in here.zone_ids:
            raise Refused("InvalidParameterValue", f"Value ({zone_id}) for parameter availabilityZoneId is invalid.")
        if not _TOKEN.fullmatch(token := asked.get("ClientToken", "")):
            raise Refused("InvalidParameterValue", "Value for parameter clientToken is invalid.")
        place = (region, zone_id, token)
        if place in self._launched:  # the same token may launch once in each zone
            before, ids = self._launched[place]
            if before != asked:
                raise Refused("IdempotentParameterMismatch", "The client token was used with other parameters.")
            if all(self.instances[each].state == "terminated" for each in ids if each in self.instances):
                raise Refused("IdempotentInstanceTerminated", "The instance of this client token was terminated.")
            return self._reservation([self.instances[each] for each in ids])
        self._check(region, asked, zone_id, here.zone_name(region, here.zone_ids.index(zone_id)))
        made = [self._made(region, asked, number) for number in range(asked["MinCount"])]
        self._launched[place] = (asked, [each.id for each in made])
        return self._reservation(made)

    def _run_together(self, region: str, asked: Row) -> list[str]:
        """The ids of the machines of a fleet."""
        return [each["InstanceId"] for each in self._run(region, asked)["Instances"]]

    def _check(self, region: str, asked: Row, zone_id: str, zone: str) -> None:
        kind, count = asked["InstanceType"], asked["MinCount"]
        if kind not in self.prices.types:
            raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
        (card,) = asked["NetworkInterfaces"]
        if refusal := self.networks.refusal(region, zone_id, card):
            raise Refused(*refusal)
        if asked["ImageId"] not in self.images:
            raise Refused("InvalidAMIID.NotFound", f"The image id '[{asked['ImageId']}]' does not exist")
        if asked["MaxCount"] != count:
            raise Refused("InvalidParameterCombination", "This cloud launches all or none.")
        if len(base64.b64decode(asked["UserData"])) > USER_DATA_BYTES:
            raise Refused("InvalidParameterValue", "User data is limited to 16384 bytes")
        for device in asked.get("BlockDeviceMappings", []):
            if device["DeviceName"] == ROOT_DEVICE and device["Ebs"]["VolumeSize"] < IMAGE_GB:
                raise Refused("InvalidBlockDeviceMapping", "Volume is smaller than the snapshot")
        spot = _spot(asked)
        offered = {(name, index) for each in self.prices.regions.values() for name, index in each.offered}
        if (kind, self._index(zone_id)) not in offered:
            raise Refused("Unsupported", f"Your requested instance type ({kind}) is not supported in {zone}.")
        same = [each for each in self.instances.values() if each.state in ALIVE and bool(each.request) == spot]
        if self._beyond_quota(region, kind, count, same, spot=spot):
            code = "MaxSpotInstanceCountExceeded" if spot else "VcpuLimitExceeded"
            raise Refused(code, "You have requested more capacity than your current limit allows")
        there = [
            each
            for each in same
            if each.row["InstanceType"] == kind and each.row["Placement"]["AvailabilityZoneId"] == zone_id
        ]
        if len(there) + count > self.capacity.get((kind, zone_id, spot), 1 << 20):
            text = (
                f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone})."
            )
            raise Refused("InsufficientInstanceCapacity", text, 500)

    def _beyond_quota(self, region: str, kind: str, count: int, same: list[Instance], *, spot: bool) -> bool:
        (name,) = (name for name, (families, of) in QUOTAS.items() if spot == of and re.match(families, kind))
        there = [each.row["InstanceType"] for each in same if each.region == region]
        counted = [each for each in there if re.match(QUOTAS[name][0], each)] + [kind] * count
        return sum(self.prices.types[each].vcpu for each in counted) > self.quota.get(name, 1 << 30)

    def _service_quotas(self) -> Response:
        rows = [
            {"ServiceCode": "ec2", "QuotaName": name, "QuotaCode": f"L-{number:08X}", "Value": float(limit)}
            for number, (name, limit) in enumerate(self.quota.items())
        ]
        other = {"ServiceCode": "ec2", "QuotaName": "EC2-VPC Elastic IPs", "QuotaCode": "L-0263D0A3", "Value": 5.0}
        return Response(200, json.dumps({"Quotas": [*rows, other]}).encode(), "application/x-amz-json-1.1")

    def _index(self, zone_id: str) -> int:
        return next(each.zone_ids.index(zone_id) for each in self.prices.regions.values() if zone_id in each.zone_ids)

    def _made(self, region: str, asked: Row, number: int) -> Instance:
        here = self.prices.regions[region]
        zone_id, (card,) = asked["Placement"]["AvailabilityZoneId"], asked["NetworkInterfaces"]
        launched = self.now().replace(microsecond=0)
        row: Row = {
            "InstanceId": f"i-0{self.chance.getrandbits(64):016x}",
            "AmiLaunchIndex": number,
            "ClientToken": asked["ClientToken"],
            "ImageId": asked["ImageId"],
            "InstanceType": asked["InstanceType"],
            "LaunchTime": launched,
            "MetadataOptions": dict(asked.get("MetadataOptions", {})),
            "Placement": {
                "AvailabilityZone": here.zone_name(region, here.zone_ids.index(zone_id)),
                "AvailabilityZoneId": zone_id,
            },
            "CpuOptions": {"CoreCount": self.prices.types[asked["InstanceType"]].vcpu // 2, "ThreadsPerCore": 2},
            "StateTransitionReason": "",
            "SubnetId": card["SubnetId"],
            "Tags": _tags_of(asked, "instance"),
        }
        request: Row | None = None
        if _spot(asked):
            request = {
                "SpotInstanceRequestId": f"sir-{row['InstanceId'][-8:]}",
                "InstanceId": row["InstanceId"],
                "State": "active",
                "Status": self._status("fulfilled"),
            }
            row |= {"InstanceLifecycle": "spot", "SpotInstanceRequestId": request["SpotInstanceRequestId"]}
        machine = self._start(row, base64.b64decode(asked["UserData"]))
        shown_at = self.now() + timedelta(seconds=self.lag_s)
        instance = Instance(row, region, machine, shown_at, card, request)
        instance.state = "pending"
        self.instances[instance.id] = instance
        return instance

    def _reservation(self, instances: list[Instance]) -> Row:
        return {"ReservationId": "r-1", "OwnerId": "123456789012", "Instances": [each.row for each in instances]}

    def _described(self, region: str, asked: Row) -> Row:
        if asked.get("InstanceIds"):
            self._existing(region, asked["InstanceIds"])
        wanted = {each["Name"]: set(each["Values"]) for each in asked.get("Filters", [])}
        found = [each for each in self._visible(region) if _matches(each, wanted)]
        if asked.get("InstanceIds"):
            found = [each for each in found if each.id in asked["InstanceIds"]]
        return {"Reservations": [self._reservation([each]) for each in found]}

    def _requests(self, region: str, asked: Row) -> Row:
        found = [each.request for each in self._visible(region) if each.request is not None]
        for only in asked.get("Filters", []):
            assert only["Name"] == "spot-instance-request-id"
            found = [each for each in found if each["SpotInstanceRequestId"] in only["Values"]]
        return {"SpotInstanceRequests": found}

    def _terminated(self, region: str, asked: Row) -> Row:
        changes = []
        for instance in self._existing(region, asked["InstanceIds"]):
            before = dict(instance.row["State"])
            if instance.state in ("pending", "running"):
                if instance.request is not None:
                    instance.request |= {"State": "closed", "Status": self._status("instance-terminated-by-user")}
                instance.row["StateTransitionReason"] = f"User initiated ({self.now():%Y-%m-%d %H:%M:%S} GMT)"
                self._end(instance, "Client.UserInitiatedShutdown", "User initiated shutdown")
                instance.machine.shut_down()
                self._pass()
            changes.append({"InstanceId": instance.id, "PreviousState": before, "CurrentState": instance.row["State"]})
        return {"TerminatingInstances": changes}

    def _tagged(self, region: str, asked: Row) -> Row:
        if asked["Resources"][0].startswith("lt-"):
            for each in asked["Resources"]:
                self.fleets.tag(each, asked["Tags"])
            return {}
        for instance in self._existing(region, asked["Resources"]):
            tags = instance.tags | {tag["Key"]: tag["Value"] for tag in asked["Tags"]}
            instance.row["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        return {}

    # --- the life of machines ---

    def _visible(self, region: str) -> Iterator[Instance]:
        now = self.now()
        return (each for each in self.instances.values() if each.region == region and each.shown_at <= now)

    def _existing(self, region: str, ids: list[str]) -> list[Instance]:
        found = {each.id: each for each in self._visible(region)}
        if unknown := [each for each in ids if each not in found]:
            raise Refused("InvalidInstanceID.NotFound", f"The instance IDs '{', '.join(unknown)}' do not exist")
        return [found[each] for each in ids]

    def _status(self, code: str) -> Row:
        return {"Code": code, "Message": code, "UpdateTime": self.now().replace(microsecond=0)}

    def _end(self, instance: Instance, code: str, message: str) -> None:
        instance.ended_at, instance.state = self.now().replace(microsecond=0), "shutting-down"
        instance.row["StateReason"] = {"Code": code, "Message": message}

    def _pass(self) -> None:
        """What time and the machines themselves have changed."""
        now = self.now()
        for instance in list(self.instances.values()):
            if instance.state == "pending" and now >= instance.began_at + timedelta(seconds=self.pending_s):
                instance.state = "running"
            if instance.state in ("pending", "running") and instance.machine.off:
                instance.row["StateTransitionReason"] = f"User initiated ({now:%Y-%m-%d %H:%M:%S} GMT)"
                if instance.request is not None:
                    instance.request |= {"State": "closed", "Status": self._status("instance-terminated-by-user")}
                self._end(instance, "Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
            if instance.ended_at is None:
                continue
            if instance.state == "shutting-down" and now >= instance.ended_at + timedelta(seconds=self.ending_s):
                instance.state = "terminated"
                instance.machine.end()
            if instance.state == "terminated" and now > instance.ended_at + FORGETS:
                instance.shown_at = datetime.max.replace(tzinfo=UTC)


_SERVED: Mapping[str, Callable[[Ec2, str, Row], Row]] = {
    "RunInstances": Ec2._run,
    "DescribeInstances": Ec2._described,
    "DescribeSpotInstanceRequests": Ec2._requests,
    "DescribeImages": Ec2._images,
    "DescribeAvailabilityZones": Ec2._zones,
    "TerminateInstances": Ec2._terminated,
    "CreateTags": Ec2._tagged,
    "CreateLaunchTemplate": lambda ec2, region, asked: ec2.fleets.create_template(region, asked),
    "DescribeLaunchTemplates": lambda ec2, region, asked: ec2.fleets.describe_templates(region, asked),
    "DeleteLaunchTemplate": lambda ec2, region, asked: ec2.fleets.delete_template(region, asked),
    "CreateFleet": lambda ec2, region, asked: ec2.fleets.create_fleet(region, asked),
    "DescribeFleets": lambda ec2, region, asked: ec2.fleets.describe_fleets(region, asked),
}


def _spot(asked: Row) -> bool:
    return bool(asked.get("InstanceMarketOptions", {}).get("MarketType") == "spot")


def _tags_of(asked: Row, kind: str) -> list[Row]:
    return [
        dict(tag) for each in asked.get("TagSpecifications", []) if each["ResourceType"] == kind for tag in each["Tags"]
    ]


def _matches(instance: Instance, wanted: Mapping[str, set[str]]) -> bool:
    known = {
        "instance-id": instance.id,
        "client-token": instance.row["ClientToken"],
        "instance-state-name": instance.state,
        **{f"tag:{key}": value for key, value in instance.tags.items()},
    }
    return all(
        bool(instance.tags.keys() & values) if name == "tag-key" else known.get(name) in values
        for name, values in wanted.items()
    )
