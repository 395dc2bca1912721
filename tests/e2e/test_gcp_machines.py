"""A job on machines of GCP: a loopback Compute Engine that runs the real startup script in namespaces, behind the
unmodified google-cloud-compute.

The cheapest machine gives notice, the job saves its work and moves; the next one is taken away without any; the third
one finishes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import pytest

from orchestrator.model import Run
from providers.clock import SystemClock
from tests.clouds.compute import FAMILY, PROJECT, Compute, Vm
from tests.clouds.gce_metadata import machines_of
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, sku
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.machines import Rented, beside, host_of, runner
from tests.e2e.living import PROGRAMS, Tradewind, until
from tests.e2e.test_another_machine import HURRY, STEPS, Reference, uninterrupted
from tests.machines.lab import laboratory

pytestmark = pytest.mark.ray

REGIONS = {"us-central1": 0.005, "us-east1": 0.006, "us-west1": 0.007}
KIND = GcpMachine("e2-standard-4", vcpu=4, memory_mb=16 * 1024)


def skus() -> Iterator[dict]:
    for region, core in REGIONS.items():
        for spot, usage, times in (("Spot Preemptible ", "Preemptible", 1), ("", "OnDemand", 3)):
            yield sku(f"{spot}E2 Instance Core running in {region}", core * times, [region], usage)
            yield sku(f"{spot}E2 Instance Ram running in {region}", 0.001 * times, [region], usage)


def usd_per_hour(vm: Vm) -> str:
    core = REGIONS[vm.zone.removesuffix("-b")]
    return str(Decimal(str(core)) * 4 + Decimal("0.001") * 16)


@dataclass
class Project:
    """An installation that rents machines on GCP."""

    gce: Compute
    tradewind: Tradewind

    def machine(self, run: Run) -> Vm:
        assert run.instance_id is not None
        return self.gce.named("tw-" + run.instance_id.partition("-tw-")[2])

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
            consoles = (console(each) for each in self.gce.vms)
            raise AssertionError("\n".join((str(error), self.tradewind.story(job), *consoles))) from None
        assert found is not None
        return found


def console(vm: Vm) -> str:
    assert isinstance(vm.machine, Rented)
    return f"--- {vm.row.name} {vm.row.status}\n{vm.machine.console()[-4000:]}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with (
        laboratory([], GuardedS3()) as lab,
        lab.in_office(),
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in lab.environment.items():
            patch.setenv(name, value)
        lists = GcpCloud({f"{region}-b": GcpZone([KIND]) for region in REGIONS}, list(skus()), page_rows=50)
        lists.forward = gce = Compute(SystemClock(), lists, usd_per_hour, machines_of(runner(lab)))
        lab.server.cloud = beside(lab.s3, lists, lambda request: request.path.startswith(("/compute/", "/v1/services")))
        tradewind = Tradewind(
            tmp_path_factory.mktemp("gcp"),
            TRADEWIND_PROVIDERS_ENABLED="gcp",
            TRADEWIND_PROVIDERS_GCP_PROJECT=PROJECT,
            TRADEWIND_PROVIDERS_GCP_REGIONS=",".join(REGIONS),
            TRADEWIND_PROVIDERS_GCP_MACHINE_TYPES=KIND.name,
            TRADEWIND_PROVIDERS_GCP_IMAGE=f"projects/debian-cloud/global/images/family/{FAMILY}",
            TRADEWIND_PROVIDERS_GCP_ENDPOINT=lab.server.url,
            TRADEWIND_PROVIDERS_GCP_CATALOG=lab.server.url,
            TRADEWIND_STORE_ROOT=f"{lab.bucket}/tradewind",
            TRADEWIND_LEASE_S="12",
            TRADEWIND_SUSPECT_AFTER_S="5",
        )
        try:
            tradewind.client.networks.set_up(["gcp"])
            tradewind.command("up")
            yield Project(gce, tradewind)
        finally:
            tradewind.close()
            gce.end_all()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with uninterrupted(tmp_path_factory.mktemp("uninterrupted"), 1) as reference:
        yield reference


def submitted(project: Project) -> str:
    train = {"workdir": str(PROGRAMS), "entry": "telling:main", "steps": STEPS, "args": {"hurry": HURRY}}
    document = {"name": "far", "train": train, "resources": {"cpu": 1}, "capacity": ["spot"]}
    path = project.tradewind.work / "far.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    done = project.tradewind.command("submit", str(path), "--yes", "--no-profile", "--output", "json")
    return str(json.loads(done.stdout)["id"])


def test_a_job_outlives_two_spot_machines_of_gcp_to_the_same_bits(project: Project, reference: Reference) -> None:
    tradewind, gce = project.tradewind, project.gce
    places = [f"gcp/{region}/{region}-b/{KIND.name}/spot" for region in REGIONS]
    job = submitted(project)
    first = project.training(job, step=10)
    assert first.offer_id == places[0]

    gce.capacity[KIND.name, "us-central1-b", True] = 0
    gce.announce(project.machine(first).row.name)
    second = project.training(job, after=first)
    assert second.offer_id == places[1]
    assert second.start_step >= 10
    until("the machine with the notice has ended", lambda: project.machine(first) not in gce.left())

    gce.take(project.machine(second).row.name)
    third = project.training(job, after=second)
    assert third.offer_id in places[1:]
    host_of(project.machine(third).machine).run(f"touch {HURRY}", user="root")
    tradewind.ended(job, "finished")

    assert reference.process.wait() == 0
    assert tradewind.weights_hash(job) == reference.weights_hash
    until("no machine and no disk is left", lambda: not gce.left())
    assert [run.end for run in tradewind.runs(job)] == ["moved", "preempted", "finished"]
    until("the books are closed", lambda: tradewind.client.jobs.get(job).paid_nano_usd == gce.bill_nano_usd())
    assert len(gce.vms) == 3

    tradewind.client.networks.tear_down(["gcp"])
    assert gce.networks.parts == []
