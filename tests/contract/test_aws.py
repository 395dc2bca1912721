"""The provider of AWS keeps the contract, through the unmodified boto3, on a loopback EC2 whose machines run.

IAM is in force: its user may do what `tradewind doctor --policy aws` says, and nothing else.

Its clock, and that of the machines, is the test's.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest

from providers.aws.calls import policy
from providers.aws.provider import AwsProvider
from providers.aws.session import Connections
from providers.aws.settings import Settings
from providers.base import Provider
from providers.clock import VirtualClock
from providers.instance import EndReason
from providers.machine.lifetime import LIVES
from providers.policy import Use
from providers.testing import ProviderContract
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change
from tests.clouds.ec2 import PARAMETER, Ec2, Instance
from tests.clouds.iam import Enforced, User
from tests.clouds.imds import machines_of
from tests.clouds.machine_clock import HURRY_S, PROGRAMS, MachineClock
from tests.clouds.machines import host_of, runner
from tests.clouds.server import Fault, LoopbackServer, serving
from tests.machines.lab import Host, Laboratory, laboratory

ZONE = "use1-az1"
KIND = AwsType("g5.xlarge", gpu="A10G", gpu_count=1, gpu_mib=24576, vcpu=4, memory_mib=16384)
LARGER = AwsType("g5.2xlarge", gpu="A10G", gpu_count=1, gpu_mib=24576, vcpu=8, memory_mib=32768)


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    with laboratory([]) as lab:
        yield lab


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with serving(AwsCloud({}, {})) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        TestAws.user = User(json.loads(policy([Use.PRICES, Use.MACHINES, Use.NETWORKS]).text))
        for name, value in TestAws.user.environment.items():
            patch.setenv(name, value)
        TestAws.connections = Connections()  # to make boto3's clients takes it a second
        yield server


class TestAws(ProviderContract):
    connections: ClassVar[Connections]
    user: ClassVar[User]
    offer_id = f"aws/us-east-1/{ZONE}/g5.xlarge/spot"
    settings = Settings(("us-east-1",), (KIND.name, LARGER.name), f"ssm:{PARAMETER}", 100)

    @pytest.fixture(autouse=True)
    def _cloud(self, lab: Laboratory, server: LoopbackServer) -> Iterator[None]:
        self.clock = VirtualClock(start_ms=1_790_000_000_000)
        first_ms = self.clock.now_ms() - 30 * 86_400_000
        here = AwsRegion(
            [ZONE, "use1-az2"],
            [
                Change("g5.xlarge", 0, first_ms, "0.40"),
                Change("g5.xlarge", 1, first_ms, "0.50"),
                Change("g5.2xlarge", 0, first_ms, "0.41"),
            ],
            {("g5.xlarge", 0), ("g5.xlarge", 1), ("g5.2xlarge", 0)},
            {"g5.xlarge": "1.006", "g5.2xlarge": "1.212"},
        )
        cloud = AwsCloud({"us-east-1": here}, {KIND.name: KIND, LARGER.name: LARGER})
        self.machines = MachineClock(self.clock, self._keeping)
        start = runner(lab, PROGRAMS, self.machines.show)
        cloud.forward = self.ec2 = Ec2(self.clock, cloud, machines_of(start, lambda: self.ec2.now()))
        self.cloud_server = server
        server.serve(Enforced(cloud, self.user, lambda thing: self.ec2.tags_of(thing)))
        AwsProvider(self.settings, self.clock, self.connections).set_up(self.install, lambda _: None)
        yield
        self.ec2.end_all()

    def test_a_machine_ends_with_its_work(self) -> None:
        """Nothing on EC2 would end it: it shuts itself down."""
        provider = self.connect()
        (name,) = provider.launch(replace(self.spec(), user_data="exit 0\n"))
        (instance,) = self.ec2.alive()
        give_up = time.monotonic() + 20
        while not instance.machine.off:  # it takes real time
            assert time.monotonic() < give_up, host_of(instance.machine).processes()
            time.sleep(HURRY_S)
        ended = self.until(provider, name, lambda found: not found.alive)
        assert ended.end_reason is EndReason.FAILED

    @pytest.mark.parametrize("killed", ["-I -S - 3600", "bash /var/lib/user-data", "sleep 1000"])
    def test_whatever_process_of_a_machine_dies_the_machine_ends(self, killed: str) -> None:
        """The work, what guards its time, and what waits for both."""
        provider = self.connect()
        (name,) = provider.launch(self.spec(time_to_live_s=3600))
        (instance,) = self.ec2.alive()
        host, give_up = host_of(instance.machine), time.monotonic() + 20
        while not (found := [pid for pid, line in host.processes().items() if killed in line]):
            assert time.monotonic() < give_up, host.processes()
            time.sleep(HURRY_S)
        self.machines.looked()
        os.kill(found[0], signal.SIGKILL)
        self.until(provider, name, lambda found: not found.alive)
        assert host.ended

    def connect(self) -> Provider:
        return AwsProvider(self.settings, self.clock, self.connections)

    other_offer_id = "aws/us-east-1/use1-az2/g5.xlarge/spot"

    def limit_capacity(self, machines: int) -> bool:
        self.ec2.capacity["g5.xlarge", ZONE, True] = machines
        return True

    next_door = other_offer_id

    def limit_capacity_next_door(self, machines: int) -> bool:
        self.ec2.capacity["g5.xlarge", "use1-az2", True] = machines
        return True

    other_type = f"aws/us-east-1/{ZONE}/g5.2xlarge/spot"

    def limit_capacity_of_other_type(self, machines: int) -> bool:
        self.ec2.capacity[LARGER.name, ZONE, True] = machines
        return True

    def refuse_together(self) -> bool:
        self.ec2.denied = {"CreateFleet"}
        return True

    def limit_quota(self, machines: int) -> bool:
        self.ec2.quota["All G and VT Spot Instance Requests"] = machines * KIND.vcpu
        return True

    def lose_reply(self, call: str) -> bool:
        actions = {"launch": ("RunInstances", "CreateFleet"), "terminate": ("TerminateInstances",)}[call]
        self.cloud_server.faults.append(Fault(lambda request: request.form.get("Action") in actions, 1, lost=True))
        return True

    def announce_end(self, instance_id: str) -> bool:
        self.ec2.announce(instance_id.removeprefix("aws-us-east-1-"))
        return True

    def take_away(self, instance_id: str) -> bool:
        self.ec2.take(instance_id.removeprefix("aws-us-east-1-"))
        return True

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.machines.advance(market_s)

    def _keeping(self) -> list[tuple[Host, int]]:
        return [(host_of(each.machine), _due_ms(each)) for each in self.ec2.alive() if LIVES in each.tags]


def _due_ms(instance: Instance) -> int:
    seconds, _, since_ms = instance.tags[LIVES].partition(" from ")
    return int(since_ms or instance.began_at.timestamp() * 1000) + int(seconds) * 1000
