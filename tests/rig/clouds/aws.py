"""RentedAws: the loopback EC2 as a place of histories."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from moto.moto_api._internal import mock_random

from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.aws.settings import Settings
from providers.base import Provider
from providers.clock import VirtualClock
from providers.instance import EndReason, Instance, InstanceState
from providers.offer import OfferId
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change, error, signed_region
from tests.clouds.ec2 import PARAMETER, Ec2
from tests.clouds.ec2 import Instance as Ec2Instance
from tests.clouds.server import Request, Response
from tests.rig.clouds.rented import PATIENT_S, Guest, Make, RentedCloud, Weather, ms, offer, texts
from tests.rig.clouds.scene import StagedServer, staged

KIND = AwsType("g5.xlarge", gpu="A10G", gpu_count=1, gpu_mib=24576, vcpu=4, memory_mib=16384)
LARGER = AwsType("g5.2xlarge", gpu="A10G", gpu_count=1, gpu_mib=24576, vcpu=8, memory_mib=32768)
KINDS = {kind.name: kind for kind in (KIND, LARGER)}
ZONES = {"us-east-1": ["use1-az1", "use1-az2"], "eu-west-1": ["euw1-az1"]}
POOLS = (
    *((name, KIND.name, zone) for name, zones in ZONES.items() for zone in zones),
    ("us-east-1", LARGER.name, "use1-az1"),
)
"""The region, type and zone of each spot pool."""
ON_DEMAND_USD, LARGER_USD, SPOT_USD = "1.006", "1.212", "0.400"
_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.STOPPING,
    "terminated": InstanceState.TERMINATED,
}


class RentedAws(RentedCloud):
    """Four spot pools, one of them of another type at the same price, and one on demand, in two regions."""

    name = "aws"
    offers = (
        *(offer("aws", region, zone, kind, spot=True) for region, kind, zone in POOLS),
        offer("aws", "us-east-1", "use1-az1", KIND.name, spot=False),
    )
    notice_s = 120.0
    launches = "RunInstances"
    machine_requests = (
        "RunInstances", "TerminateInstances", "CreateTags",
        "CreateLaunchTemplate", "CreateFleet", "DeleteLaunchTemplate",
    )  # fmt: skip
    network_requests = (
        "CreateVpc", "CreateSubnet", "CreateInternetGateway", "AttachInternetGateway", "CreateRoute",
        "CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "DetachInternetGateway", "DeleteInternetGateway",
        "DeleteSubnet", "DeleteSecurityGroup", "DeleteVpc",
    )  # fmt: skip
    targets: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "launch": ("RunInstances", "CreateLaunchTemplate", "CreateFleet", "CreateTags"),
        "terminate": ("TerminateInstances",),
        "renew": ("CreateTags",),
    }
    throttled = error("RequestLimitExceeded", "Request limit exceeded.", 503)
    settings: ClassVar[Mapping[str, object]] = {
        "providers.aws.regions": list(ZONES),
        "providers.aws.instance_types": list(KINDS),
        "providers.aws.image": f"ssm:{PARAMETER}",
    }

    def __init__(self, clock: VirtualClock, weather: Weather, seed: int, connections: Connections) -> None:
        super().__init__(clock, weather)
        self._connections = connections
        before_ms = clock.now_ms() - 86_400_000
        regions = {}
        for name, zones in ZONES.items():
            offered = {(kind, zones.index(zone)) for region, kind, zone in POOLS if region == name}
            changes = [Change(kind, zone, before_ms, SPOT_USD) for kind, zone in sorted(offered)]
            regions[name] = AwsRegion(zones, changes, offered, {KIND.name: ON_DEMAND_USD, LARGER.name: LARGER_USD})
        self._coming: dict[tuple[str, str, int, int], str] = {}
        self.prices = AwsCloud(regions, KINDS, page_rows=100)
        mock_random.seed(seed)
        self.prices.forward = self.ec2 = Ec2(clock, self.prices, lambda *_: Guest())
        self.ec2.chance = random.Random(f"ec2 {seed}")
        self.ec2.lag_s, self.ec2.pending_s, self.ec2.ending_s = weather.lag_s, weather.pending_s, weather.ending_s

    def connect(self) -> Provider:
        settings = Settings(tuple(ZONES), tuple(KINDS), f"ssm:{PARAMETER}", 100)
        return AwsProvider(settings, self.clock, self._connections)

    def serve(self, request: Request) -> Response:
        self._change_prices()
        return self.prices(request)

    def named(self, request: Request) -> tuple[str, str]:
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        name = target or request.form.get("Action", request.path)
        reads = name.startswith(("Describe", "Get", "List"))  # several may be under way in a region
        return name, f"{signed_region(request)} {request.body.decode()}" if reads else signed_region(request)

    def _change_prices(self) -> None:
        """EC2 shows no price before its time, which is a whole second."""
        for region, kind, zone, at_ms in [each for each in self._coming if each[3] <= self.clock.now_ms()]:
            price = self._coming.pop((region, kind, zone, at_ms))
            self.prices.regions[region].changes.append(Change(kind, zone, at_ms, price))

    def _all(self) -> Iterator[tuple[Instance, int]]:
        self._change_prices()
        self.ec2.alive()
        for each in self.ec2.instances.values():
            yield self._shown(each), self.ec2.cost_nano_usd_of(each)

    def _shown(self, each: Ec2Instance) -> Instance:
        guest, name, state = each.machine, f"aws-{each.region}-{each.id}", _STATES[each.state]
        assert isinstance(guest, Guest)
        zone, kind = each.row["Placement"]["AvailabilityZoneId"], each.row["InstanceType"]
        reason = self.reasons.get(name, EndReason.USER) if state is InstanceState.TERMINATED else None
        token = each.tags.get("tradewind-token", each.row["ClientToken"])
        return Instance(
            name, "aws", offer("aws", each.region, zone, kind, spot=each.request is not None), token, state,
            ms(each.began_at), ms(each.ended_at), reason, guest.deadline_ms, each.tags,
        )  # fmt: skip

    def left(self) -> list[str]:
        return texts([each.id for each in self.ec2.alive()], "machine")

    def parts(self) -> list[str]:
        of_fleets = [part for region in ZONES for part in self.ec2.fleets.left(region)]
        return of_fleets + [part for region in ZONES for part in self.ec2.networks.parts(region)]

    def set_price(self, offer_id: str, nano_usd_per_hour: int) -> None:
        wanted = OfferId.parse(offer_id)
        if wanted.spot:  # within a fifth of the usual one: no price that is far off is believed at once
            dollars = float(SPOT_USD) * (0.8 + 0.4 * min(1.0, nano_usd_per_hour / 4e9))
            zone, at_ms = ZONES[wanted.region].index(wanted.zone), -(-self.clock.now_ms() // 1000) * 1000
            self._coming[wanted.region, wanted.instance_type, zone, at_ms] = f"{dollars:.4f}"

    def set_capacity(self, offer_id: str, machines: int | None) -> None:
        wanted = OfferId.parse(offer_id)
        pool = (wanted.instance_type, wanted.zone, wanted.spot)
        self.ec2.capacity.pop(pool, None)
        if machines is not None:
            self.ec2.capacity[pool] = machines

    def _capacity(self, offer_id: str) -> int | None:
        wanted = OfferId.parse(offer_id)
        return self.ec2.capacity.get((wanted.instance_type, wanted.zone, wanted.spot))

    def _taken(self, instance_id: str) -> None:
        self.ec2.take(_own(instance_id))

    def _announce(self, instance_id: str) -> None:
        self.ec2.announce(_own(instance_id))

    def _guest(self, instance_id: str) -> Guest:
        guest = self.ec2.instances[_own(instance_id)].machine
        assert isinstance(guest, Guest)
        return guest


@contextmanager
def account(_folder: Path) -> Iterator[tuple[type[RentedAws], StagedServer, Make]]:
    """A server, and what opens accounts there. Sets environment variables that boto3 reads."""
    with staged() as server:
        values = {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        connections = Connections(PATIENT_S, PATIENT_S, attempts=1)
        try:
            yield RentedAws, server, lambda clock, weather, seed: RentedAws(clock, weather, seed, connections)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def _own(instance_id: str) -> str:
    return "i-" + instance_id.rpartition("-")[2]
