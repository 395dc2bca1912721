"""One installation that rents machines on three loopback clouds, each behind its own unmodified client library.

EC2 is beside the bucket and the token service of AWS; Compute Engine and Azure (over TLS, its price list without) have
servers of their own. The machines are namespaces of one laboratory and run the real user data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.model import Run
from providers.clock import SystemClock
from providers.offer import OfferId
from tests.clouds import gce_metadata, imds, scheduled_events
from tests.clouds.arm import GROUP, SUBSCRIPTION, Arm
from tests.clouds.arm import IMAGE as AZURE_IMAGE
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change
from tests.clouds.azure import AzureCloud, loopback_tls, managed_identity, resource_sku, row
from tests.clouds.compute import FAMILY, PROJECT, Compute, Vm
from tests.clouds.ec2 import PARAMETER, Ec2
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, sku
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.machines import Rented, Start, beside, runner
from tests.clouds.server import Cloud, LoopbackServer
from tests.e2e.living import PATIENCE_S, PROGRAMS, Tradewind, until
from tests.e2e.test_another_machine import HURRY
from tests.machines.lab import Laboratory, laboratory
from tests.machines.namespaces import network_of

STEPS = 600  # nine minutes, unless it is asked to hurry: it must not end before it has crossed the clouds
CLOUDS = ("aws", "gcp", "azure")
AWS_REGION, AWS_TYPE = "us-east-1", AwsType("m7i.xlarge", gpu="", gpu_count=0, vcpu=4, memory_mib=16384)
AWS_SPOT_USD = {"use1-az1": "0.080", "use1-az2": "0.090"}
GCP_REGION, GCP_TYPE = "us-central1", GcpMachine("e2-standard-4", vcpu=4, memory_mb=16 * 1024)
GCP_CORE_USD, GCP_GIB_USD = 0.021, 0.001
AZURE_SIZE = "Standard_D4s_v5"
AZURE_SPOT_USD = {"eastus": 0.110, "westus2": 0.120}
OFFERS = (
    *(f"aws/{AWS_REGION}/{zone}/{AWS_TYPE.name}/spot" for zone in AWS_SPOT_USD),
    f"gcp/{GCP_REGION}/{GCP_REGION}-b/{GCP_TYPE.name}/spot",
    *(f"azure/{region}//{AZURE_SIZE}/spot" for region in AZURE_SPOT_USD),
)
"""All spot offers, the cheapest first."""


@dataclass
class ThreeClouds:
    """The clouds, and the installation that rents there."""

    ec2: Ec2
    gce: Compute
    arm: Arm
    tradewind: Tradewind

    def name(self, run: Run) -> str:
        """What the cloud calls the machine of a run."""
        assert run.instance_id is not None
        if run.instance_id.startswith("aws-"):
            return run.instance_id.removeprefix(f"aws-{AWS_REGION}-")
        return "tw-" + run.instance_id.partition("-tw-")[2]

    def machine(self, run: Run) -> Rented:
        """The machine of a run."""
        return self.machines()[self.name(run)]

    def machines(self) -> dict[str, Rented]:
        """All machines that there are and were, by the names that the clouds have for them."""
        found = {each.id: each.machine for each in self.ec2.instances.values()}
        found |= {each.row.name: each.machine for each in self.gce.vms}
        found |= {each.name: each.machine for each in self.arm.every() if each.machine is not None}
        return {name: each for name, each in found.items() if isinstance(each, Rented)}

    def sell_out(self, job: str, run: Run) -> int:
        """Let there be no other machine of a run's offer. Returns the step that the job has reached by then."""
        offer = OfferId.parse(run.offer_id)
        if offer.provider == "azure":
            self.arm.capacity[offer.region, offer.instance_type, True] = 0
        else:
            capacity = self.ec2.capacity if offer.provider == "aws" else self.gce.capacity
            capacity[offer.instance_type, offer.zone, True] = 0
        return self.tradewind.client.jobs.get(job).step

    def announce(self, run: Run) -> None:
        """Give notice that a run's machine will be taken away, as its cloud does."""
        name = self.name(run)
        clouds = {"aws": self.ec2.announce, "gcp": self.gce.announce, "azure": self.arm.announce}
        clouds[run.offer_id.partition("/")[0]](name)

    def bills_nano_usd(self) -> dict[str, int]:
        """What each cloud has billed."""
        bills = (self.ec2.bill_nano_usd(), self.gce.bill_nano_usd(), self.arm.bill_nano_usd())
        return dict(zip(CLOUDS, bills, strict=True))

    def booked_nano_usd(self, *, estimated: bool = False) -> dict[str, int]:
        """What the ledger has for each cloud's machines; `estimated`: what it expects to be billed for fetching
        checkpoints to them."""
        found = dict.fromkeys(CLOUDS, 0)
        with self.tradewind.installation.store.read() as tx:
            for entry in tx.entries():
                if (entry.kind == "egress_estimate") is estimated:
                    found[entry.offer_id.partition("/")[0]] += entry.amount_nano_usd
        return found

    def close_books(self) -> None:
        """Wait until the ledger has what each cloud has billed."""
        try:
            until("the books are closed", lambda: self.booked_nano_usd() == self.bills_nano_usd())
        except AssertionError as error:
            with self.tradewind.installation.store.read() as tx:
                rows = [str(each) for each in tx.entries()]
            lives = [str(each) for each in (*self.ec2.instances.values(), *self.gce.vms, *self.arm.every())]
            sums = f"booked {self.booked_nano_usd()}", f"billed {self.bills_nano_usd()}"
            raise AssertionError("\n".join((str(error), *sums, *rows, *lives))) from None

    def networks(self) -> list[object]:
        """All parts of networks, on all clouds."""
        azure = self.arm.networks
        return [*self.ec2.networks.parts(AWS_REGION), *self.gce.networks.parts, *azure.resources, *azure.groups]

    def left(self) -> list[object]:
        """All machines, disks, interfaces and addresses."""
        return [*self.ec2.alive(), *self.gce.left(), *self.arm.alive(), *self.arm.beside]

    def submitted(self, name: str = "far", clouds: Sequence[str] = CLOUDS) -> str:
        """A job for the cheapest spot machine of these clouds."""
        train = {"workdir": str(PROGRAMS), "entry": "telling:main", "steps": STEPS, "args": {"hurry": HURRY}}
        resources, where = {"cpu": 1}, {"clouds": list(clouds)}
        document = {"name": name, "train": train, "resources": resources, "capacity": ["spot"], "where": where}
        path = self.tradewind.work / f"{name}.yaml"
        path.write_text(json.dumps(document))  # JSON is YAML
        return self.tradewind.client.jobs.submit(path).id

    def training(self, job: str, offer: str, *, step: int = 1) -> Run:
        """The job's newest run, once it trains on that offer and has done that step."""

        def look() -> Run | None:
            newest = self.tradewind.runs(job)[-1:]
            if not newest or newest[0].training_from_ms is None or newest[0].offer_id != offer:
                return None
            return newest[0] if self.tradewind.client.jobs.get(job).step >= step else None

        try:
            found = until(f"the job trains on {offer}", look, 2 * PATIENCE_S)  # Ray may have to be started again
        except AssertionError as error:
            consoles = (f"--- {name}\n{each.console()[-4000:]}" for name, each in self.machines().items())
            raise AssertionError("\n".join((str(error), self.tradewind.story(job), *consoles))) from None
        assert found is not None
        return found


@contextmanager
def three_clouds(folder: Path) -> Iterator[ThreeClouds]:
    """Up, with all networks."""
    with (
        laboratory([], GuardedS3()) as lab,
        lab.in_office(),
        ExitStack() as stack,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in lab.environment.items():
            patch.setenv(name, value)
        start = runner(lab)
        ec2, gce = _aws(lab, start), _gcp(start)
        google = _serving(lab, stack, gce.lists)
        arm, azure = _azure(lab, stack, start, folder, patch)
        tradewind = Tradewind(
            folder,
            TRADEWIND_PROVIDERS_ENABLED=",".join(CLOUDS),
            TRADEWIND_PROVIDERS_AWS_REGIONS=AWS_REGION,
            TRADEWIND_PROVIDERS_AWS_INSTANCE_TYPES=AWS_TYPE.name,
            TRADEWIND_PROVIDERS_AWS_IMAGE=f"ssm:{PARAMETER}",
            TRADEWIND_PROVIDERS_GCP_PROJECT=PROJECT,
            TRADEWIND_PROVIDERS_GCP_REGIONS=GCP_REGION,
            TRADEWIND_PROVIDERS_GCP_MACHINE_TYPES=GCP_TYPE.name,
            TRADEWIND_PROVIDERS_GCP_IMAGE=f"projects/debian-cloud/global/images/family/{FAMILY}",
            TRADEWIND_PROVIDERS_GCP_ENDPOINT=google.url,
            TRADEWIND_PROVIDERS_GCP_CATALOG=google.url,
            **azure,
            TRADEWIND_STORE_ROOT=f"{lab.bucket}/tradewind",
            TRADEWIND_STORE_REGION=AWS_REGION,  # else a store with an address of its own is in no cloud
            TRADEWIND_LEASE_S="12",
            TRADEWIND_SUSPECT_AFTER_S="5",
        )
        try:
            tradewind.client.networks.set_up(CLOUDS)  # in this process, which has the libraries already
            tradewind.command("up")
            yield ThreeClouds(ec2, gce, arm, tradewind)
        finally:
            tradewind.close()
            for each in (ec2, gce, arm):
                each.end_all()


def _aws(lab: Laboratory, start: Start) -> Ec2:
    clock = SystemClock()
    yesterday_ms = clock.now_ms() - 86_400_000
    changes = [Change(AWS_TYPE.name, zone, yesterday_ms, usd) for zone, usd in enumerate(AWS_SPOT_USD.values())]
    offered = {(AWS_TYPE.name, zone) for zone in range(len(AWS_SPOT_USD))}
    here = AwsRegion(list(AWS_SPOT_USD), changes, offered, {AWS_TYPE.name: "0.2016"})
    prices = AwsCloud({AWS_REGION: here}, {AWS_TYPE.name: AWS_TYPE})
    prices.forward = ec2 = Ec2(clock, prices, imds.machines_of(start, lambda: ec2.now()))
    lab.server.cloud = beside(lab.s3, prices, imds.asks_for_machines)
    return ec2


def _gcp(start: Start) -> Compute:
    skus = []
    for spot, usage, times in (("Spot Preemptible ", "Preemptible", 1), ("", "OnDemand", 3)):
        skus.append(sku(f"{spot}E2 Instance Core running in Iowa", GCP_CORE_USD * times, [GCP_REGION], usage))
        skus.append(sku(f"{spot}E2 Instance Ram running in Iowa", GCP_GIB_USD * times, [GCP_REGION], usage))

    def usd_per_hour(_: Vm) -> str:
        return str(Decimal(str(GCP_CORE_USD)) * 4 + Decimal(str(GCP_GIB_USD)) * 16)

    lists = GcpCloud({f"{GCP_REGION}-b": GcpZone([GCP_TYPE])}, skus, page_rows=50)
    lists.forward = gce = Compute(SystemClock(), lists, usd_per_hour, gce_metadata.machines_of(start))
    return gce


def _azure(
    lab: Laboratory, stack: ExitStack, start: Start, folder: Path, patch: pytest.MonkeyPatch
) -> tuple[Arm, dict[str, str]]:
    """(the cloud, the settings of its user). The environment has the credentials of a managed identity."""
    context, authority = loopback_tls(folder, lab.store.address)
    rows = [row(region, AZURE_SIZE, usd, spot=True) for region, usd in AZURE_SPOT_USD.items()]
    rows += [row(region, AZURE_SIZE, 0.192) for region in AZURE_SPOT_USD]
    skus = [resource_sku(AZURE_SIZE, region, gpus=0, vcpus=4, memory_gb=16) for region in AZURE_SPOT_USD]
    prices = AzureCloud(rows, skus)
    with network_of(lab.store.pid):
        server = LoopbackServer(prices, context, lab.store.address)
    server.start()
    stack.callback(server.stop)
    prices.base = server.url
    started = scheduled_events.machines_of(start, lambda: arm.now(), lambda name: arm.approved(name))
    prices.forward = arm = Arm(SystemClock(), prices, started)
    shop = _serving(lab, stack, AzureCloud(rows, forward=managed_identity))
    patch.setenv("IDENTITY_ENDPOINT", f"{shop.url}/msi/token")
    patch.setenv("IDENTITY_HEADER", "a header")
    patch.setenv("REQUESTS_CA_BUNDLE", authority)
    return arm, {
        "TRADEWIND_PROVIDERS_AZURE_SUBSCRIPTION": SUBSCRIPTION,
        "TRADEWIND_PROVIDERS_AZURE_RESOURCE_GROUP": GROUP,
        "TRADEWIND_PROVIDERS_AZURE_REGIONS": ",".join(AZURE_SPOT_USD),
        "TRADEWIND_PROVIDERS_AZURE_INSTANCE_TYPES": AZURE_SIZE,
        "TRADEWIND_PROVIDERS_AZURE_IMAGE": ":".join((*AZURE_IMAGE, "latest")),
        "TRADEWIND_PROVIDERS_AZURE_MANAGEMENT": server.url,
        "TRADEWIND_PROVIDERS_AZURE_PRICES": f"{shop.url}/api/retail/prices",
    }


def _serving(lab: Laboratory, stack: ExitStack, cloud: Cloud) -> LoopbackServer:
    """A server in the laboratory, without TLS."""
    with network_of(lab.store.pid):
        server = LoopbackServer(cloud, address=lab.store.address)
    server.start()
    stack.callback(server.stop)
    return server
