"""An account at the loopback EC2, for tests whose machines run nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.aws.settings import Settings
from providers.base import LaunchSpec
from providers.clock import VirtualClock
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change
from tests.clouds.ec2 import PARAMETER, Ec2
from tests.clouds.ec2_networks import Networks
from tests.clouds.server import Fault, LoopbackServer, Request
from tests.clouds.still import Still

HOUR_S = 3600
NOW_MS = 1_790_000_000_000  # after the date of the prices
SPOT = "aws/us-east-1/use1-az1/g5.xlarge/spot"
ON_DEMAND = "aws/us-east-1/use1-az2/g5.xlarge/on_demand"
KINDS = [
    AwsType("g5.xlarge", gpu="A10G", gpu_count=1, gpu_mib=24576, vcpu=4, memory_mib=16384),
    AwsType("g5.2xlarge", gpu="A10G", gpu_count=1, gpu_mib=24576, vcpu=8, memory_mib=32768),
    AwsType("m7i.large", gpu="", gpu_count=0, vcpu=2, memory_mib=8192),
    AwsType("p3.2xlarge", gpu="V100", gpu_count=1, gpu_mib=16384, vcpu=8, memory_mib=62464, hypervisor="xen"),
]
NAMES = tuple(kind.name for kind in KINDS)


@dataclass
class Account:
    """A provider, and the cloud behind it."""

    server: LoopbackServer
    ec2: Ec2
    prices: AwsCloud
    clock: VirtualClock
    connections: Connections

    def connect(self, **options: Any) -> AwsProvider:
        settings = Settings(("us-east-1", "eu-west-1"), NAMES, f"ssm:{PARAMETER}", 100)
        return AwsProvider(replace(settings, **options), self.clock, self.connections)

    def launches(self) -> list[Request]:
        return self.server.asked("Action=RunInstances")

    def fails(self, action: str, *, times: int | None = 1, region: str = "", **how: Any) -> None:
        """Calls of this action in this region fail."""

        def match(request: Request) -> bool:
            return f"Action={action}&".encode() in request.body and region in request.headers.get("Authorization", "")

        self.server.faults.append(Fault(match, times, **how))

    def fails_where(self, match: Callable[[Request], bool], times: int | None = None, **how: Any) -> None:
        """Requests that match fail."""
        self.server.faults.append(Fault(match, times, **how))

    def fails_at(self, number: int, actions: tuple[str, ...], **how: Any) -> None:
        """The call number so and so, from 0, of those whose action begins with one of these fails."""
        seen: list[Request] = []

        def match(request: Request) -> bool:
            if request.form.get("Action", "").startswith(actions):
                seen.append(request)
            return len(seen) == number + 1 and seen[-1] is request

        self.server.faults.append(Fault(match, None, **how))


def spec(offer_id: str = SPOT, *, token: str = "token-1", **options: Any) -> LaunchSpec:
    tags = options.pop("tags", {"tradewind-install": "tw-1", "tradewind-job": "job-1"})
    return LaunchSpec(token, offer_id, options.pop("user_data", "sleep 1\n"), tags, **options)


def opened(server: LoopbackServer, connections: Connections, networks: Networks | None) -> Account:
    """A new account, with these networks (None: with none)."""
    clock = VirtualClock(start_ms=NOW_MS)
    before_ms = clock.now_ms() - 86_400_000
    regions = {}
    for name, zones in {"us-east-1": ["use1-az1", "use1-az2"], "eu-west-1": ["euw1-az1"]}.items():
        offered = {(kind.name, zone) for kind in KINDS for zone in range(len(zones))}
        changes = [Change(kind, zone, before_ms, "0.40") for kind, zone in offered]
        regions[name] = AwsRegion(
            zones, changes, offered, {"g5.xlarge": "1.006", "g5.2xlarge": "1.212", "m7i.large": "0.1008"}
        )
    regions["ap-east-1"] = AwsRegion(["ape1-az1"], opt_in="not-opted-in")
    prices = AwsCloud(regions, {kind.name: kind for kind in KINDS})
    prices.forward = ec2 = Ec2(clock, prices, lambda _, user_data: Still(user_data), networks)
    server.serve(prices)
    return Account(server, ec2, prices, clock, connections)
