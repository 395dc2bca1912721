"""A job on machines of Azure: a loopback Azure Resource Manager that runs the real custom data in namespaces, behind
the unmodified azure-mgmt-compute and azure-identity.

The cheapest region gives notice; the job saves its work in time, moves to the next region and finishes there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.model import Run
from providers.clock import SystemClock
from tests.clouds.arm import GROUP, IMAGE, SUBSCRIPTION, Arm, Vm
from tests.clouds.azure import AzureCloud, loopback_tls, managed_identity, resource_sku, row
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.machines import Rented, beside, host_of, runner
from tests.clouds.scheduled_events import machines_of
from tests.clouds.server import LoopbackServer, Request
from tests.e2e.living import PROGRAMS, Tradewind, until
from tests.e2e.test_another_machine import HURRY, STEPS, Reference, uninterrupted
from tests.machines.lab import Laboratory, laboratory
from tests.machines.namespaces import network_of

pytestmark = pytest.mark.ray

SIZE = "Standard_D4s_v5"
SPOT_USD = {"eastus": 0.04, "westus2": 0.05}


@dataclass
class Account:
    """An installation that rents machines on Azure."""

    lab: Laboratory
    arm: Arm
    tradewind: Tradewind

    def machine(self, run: Run) -> Vm:
        assert run.instance_id is not None
        return next(each for each in self.arm.every() if run.instance_id.endswith(f"-{each.name}"))

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
            consoles = (console(each) for each in self.arm.every())
            raise AssertionError("\n".join((str(error), self.tradewind.story(job), *consoles))) from None
        assert found is not None
        return found


def console(vm: Vm) -> str:
    assert isinstance(vm.machine, Rented)
    return f"--- {vm.name} {vm.state}\n{vm.machine.console()[-4000:]}"


def needs_no_account(request: Request) -> bool:
    return request.path.endswith("/retail/prices") or request.path == "/msi/token"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with (
        laboratory([], GuardedS3()) as lab,
        lab.in_office(),
        pytest.MonkeyPatch.context() as patch,
    ):
        context, authority = loopback_tls(tmp_path_factory.mktemp("tls"), lab.store.address)
        clock = SystemClock()
        rows = [row(region, SIZE, usd, spot=True) for region, usd in SPOT_USD.items()]
        rows += [row(region, SIZE, 0.192) for region in SPOT_USD]
        skus = [resource_sku(SIZE, region, gpus=0, vcpus=4, memory_gb=16) for region in SPOT_USD]
        prices = AzureCloud(rows, skus)
        with network_of(lab.store.pid):
            server = LoopbackServer(prices, context, lab.store.address)
        server.start()
        prices.base = server.url
        start = machines_of(runner(lab), lambda: arm.now(), lambda name: arm.approved(name))
        prices.forward = arm = Arm(clock, prices, start)
        shop = AzureCloud(rows, base=lab.server.url, forward=managed_identity)
        lab.server.cloud = beside(lab.s3, shop, needs_no_account)
        for name, value in lab.environment.items():
            patch.setenv(name, value)
        patch.setenv("IDENTITY_ENDPOINT", f"{lab.server.url}/msi/token")
        patch.setenv("IDENTITY_HEADER", "a header")
        patch.setenv("REQUESTS_CA_BUNDLE", authority)
        tradewind = Tradewind(
            tmp_path_factory.mktemp("azure"),
            TRADEWIND_PROVIDERS_ENABLED="azure",
            TRADEWIND_PROVIDERS_AZURE_SUBSCRIPTION=SUBSCRIPTION,
            TRADEWIND_PROVIDERS_AZURE_RESOURCE_GROUP=GROUP,
            TRADEWIND_PROVIDERS_AZURE_REGIONS=",".join(SPOT_USD),
            TRADEWIND_PROVIDERS_AZURE_INSTANCE_TYPES=SIZE,
            TRADEWIND_PROVIDERS_AZURE_IMAGE=":".join((*IMAGE, "latest")),
            TRADEWIND_PROVIDERS_AZURE_MANAGEMENT=server.url,
            TRADEWIND_PROVIDERS_AZURE_PRICES=f"{lab.server.url}/api/retail/prices",
            TRADEWIND_STORE_ROOT=f"{lab.bucket}/tradewind",
            TRADEWIND_LEASE_S="12",
            TRADEWIND_SUSPECT_AFTER_S="5",
        )
        try:
            tradewind.command("up", "--cloud", "azure")
            tradewind.command("up")
            yield Account(lab, arm, tradewind)
        finally:
            tradewind.close()
            arm.end_all()
            server.stop()


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


def test_a_job_outlives_a_spot_machine_of_azure_to_the_same_bits(account: Account, reference: Reference) -> None:
    tradewind, arm = account.tradewind, account.arm
    job = submitted(account)
    first = account.training(job, step=10)
    assert first.offer_id == f"azure/eastus//{SIZE}/spot"

    arm.capacity["eastus", SIZE, True] = 0
    arm.announce(account.machine(first).name, timedelta(seconds=10))
    second = account.training(job, after=first)
    assert second.offer_id == f"azure/westus2//{SIZE}/spot"
    assert second.start_step >= 10
    until("the machine with the notice is gone", lambda: account.machine(first) in arm.gone)

    host_of(account.machine(second).machine).run(f"touch {HURRY}", user="root")
    tradewind.ended(job, "finished")
    assert reference.process.wait() == 0
    assert tradewind.weights_hash(job) == reference.weights_hash
    until("no machine is left", lambda: not arm.alive())
    assert not arm.beside  # disks, interfaces, addresses
    before, last = tradewind.runs(job)[0], tradewind.runs(job)[-1]
    assert last.end == "finished"
    if before.end == "preempted":  # Azure was faster than the move, and does not say when it took the machine
        taken, missed_ms = account.machine(first), before.billed_to_ms
        assert taken.ended_at is not None
        assert missed_ms is not None
        assert missed_ms >= taken.ended_at.timestamp() * 1000
        taken.ended_at = datetime.fromtimestamp(missed_ms / 1000, UTC)
    else:
        assert before.end == "moved"
    until("the books are closed", lambda: tradewind.client.jobs.get(job).paid_nano_usd == arm.bill_nano_usd())
    assert len(arm.every()) >= 2

    tradewind.command("down")
    tradewind.command("down", "--cloud", "azure")
    assert not arm.networks.resources
    assert not arm.networks.groups
    assert not arm.keys
