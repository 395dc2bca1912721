"""A job on machines of AWS: a loopback EC2 that runs the real user data in namespaces, behind the unmodified boto3.

The cheapest zone gives notice, and the job moves; the next machine is taken away without any; the third one finishes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from orchestrator.model import Run
from providers.clock import SystemClock
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change
from tests.clouds.ec2 import PARAMETER, Ec2, Instance
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.imds import asks_for_machines, machines_of
from tests.clouds.machines import Rented, beside, host_of, runner
from tests.e2e.living import PROGRAMS, Tradewind, until
from tests.e2e.test_another_machine import HURRY, STEPS, Reference, uninterrupted
from tests.machines.lab import Laboratory, laboratory

pytestmark = pytest.mark.ray

KIND = AwsType("m7i.xlarge", gpu="", gpu_count=0, vcpu=4, memory_mib=16384)
ZONES = ["use1-az1", "use1-az2", "use1-az3"]
SPOT_USD = ["0.08", "0.09", "0.10"]


@dataclass
class Account:
    """An installation that rents machines on AWS."""

    lab: Laboratory
    ec2: Ec2
    tradewind: Tradewind

    def machine(self, run: Run) -> Instance:
        assert run.instance_id is not None
        return self.ec2.instances[run.instance_id.removeprefix("aws-us-east-1-")]

    def training(self, job: str, *, after: Run | None = None, step: int = 1) -> Run:
        """The job's newest run, once it trains (and is newer than `after`)."""

        def look() -> Run | None:
            newest = self.tradewind.runs(job)[-1:]
            if not newest or newest[0].training_from_ms is None or (after and newest[0].id == after.id):
                return None
            return newest[0] if self.tradewind.client.jobs.get(job).step >= step else None

        try:
            found = until("the job trains", look)
        except AssertionError as error:
            consoles = (console(each) for each in self.ec2.instances.values())
            raise AssertionError("\n".join((str(error), self.tradewind.story(job), *consoles))) from None
        assert found is not None
        return found


def console(instance: Instance) -> str:
    assert isinstance(instance.machine, Rented)
    return f"--- {instance.id} {instance.state}\n{instance.machine.console()[-4000:]}"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with (
        laboratory([], GuardedS3()) as lab,
        lab.in_office(),
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in lab.environment.items():
            patch.setenv(name, value)
        clock = SystemClock()
        before_ms = clock.now_ms() - 86_400_000
        changes = [Change(KIND.name, zone, before_ms, price) for zone, price in enumerate(SPOT_USD)]
        here = AwsRegion(ZONES, changes, {(KIND.name, zone) for zone in range(len(ZONES))}, {KIND.name: "0.2016"})
        prices = AwsCloud({"us-east-1": here}, {KIND.name: KIND})
        prices.forward = ec2 = Ec2(clock, prices, machines_of(runner(lab), lambda: ec2.now()))
        lab.server.cloud = beside(lab.s3, prices, asks_for_machines)
        tradewind = Tradewind(
            tmp_path_factory.mktemp("aws"),
            TRADEWIND_PROVIDERS_ENABLED="aws",
            TRADEWIND_PROVIDERS_AWS_REGIONS="us-east-1",
            TRADEWIND_PROVIDERS_AWS_INSTANCE_TYPES=KIND.name,
            TRADEWIND_PROVIDERS_AWS_IMAGE=f"ssm:{PARAMETER}",
            TRADEWIND_STORE_ROOT=f"{lab.bucket}/tradewind",
            TRADEWIND_LEASE_S="12",
            TRADEWIND_SUSPECT_AFTER_S="5",
        )
        try:
            tradewind.command("up", "--cloud", "aws")
            tradewind.command("up")
            yield Account(lab, ec2, tradewind)
        finally:
            tradewind.close()
            ec2.end_all()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with uninterrupted(tmp_path_factory.mktemp("uninterrupted"), 1) as reference:
        yield reference


def submitted(account: Account) -> str:
    train = {"workdir": str(PROGRAMS), "entry": "telling:main", "steps": STEPS, "args": {"hurry": HURRY}}
    document = {"name": "far", "train": train, "resources": {"cpu": 1}, "capacity": ["spot"]}
    path = account.tradewind.work / "far.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    done = account.tradewind.command("submit", str(path), "--yes", "--no-profile", "--output", "json")
    return str(json.loads(done.stdout)["id"])


def test_a_job_outlives_two_spot_machines_of_aws_to_the_same_bits(account: Account, reference: Reference) -> None:
    tradewind, ec2 = account.tradewind, account.ec2
    job = submitted(account)
    first = account.training(job, step=10)
    assert first.offer_id == f"aws/us-east-1/{ZONES[0]}/{KIND.name}/spot"

    ec2.capacity[KIND.name, ZONES[0], True] = 0
    ec2.announce(account.machine(first).id)
    second = account.training(job, after=first)
    assert second.offer_id == f"aws/us-east-1/{ZONES[1]}/{KIND.name}/spot"
    until("the machine with the notice has ended", lambda: account.machine(first).state == "terminated")
    assert second.start_step >= 10

    ec2.take(account.machine(second).id)
    third = account.training(job, after=second)
    assert third.offer_id == f"aws/us-east-1/{ZONES[2]}/{KIND.name}/spot"
    host_of(account.machine(third).machine).run(f"touch {HURRY}", user="root")
    tradewind.ended(job, "finished")

    assert reference.process.wait() == 0
    assert tradewind.weights_hash(job) == reference.weights_hash
    until("no machine is left", lambda: not ec2.alive())
    assert [run.end for run in tradewind.runs(job)][-2:] == ["preempted", "finished"]
    until("the books are closed", lambda: tradewind.client.jobs.get(job).paid_nano_usd == ec2.bill_nano_usd())
    assert len(ec2.instances) == 3

    tradewind.command("down")
    tradewind.command("down", "--cloud", "aws")
    assert ec2.networks.parts("us-east-1") == []
