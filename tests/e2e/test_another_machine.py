"""Machines that share nothing with the control plane: three hosts behind sshd in namespaces, and a bucket between them.

A job trains on the first, where kill -9 ends every process, and finishes on another to the same bits.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.model import Run
from providers.instance import Instance
from providers.money import cost_nano_usd, usd
from providers.static import StaticProvider
from tests.clouds.guarded_s3 import GuardedS3
from tests.e2e.living import PROGRAMS, Tradewind, losses, until
from tests.machines.lab import Host, Laboratory, laboratory
from tests.machines.owned import declared
from trainers.control import ControlDirectory
from trainers.spec import TrainerSpec

pytestmark = pytest.mark.ray

STEPS = 120
HURRY = "/tmp/hurry"
PRICES = {"one": 0.8, "two": 1.0, "three": 1.2}


@dataclass
class Reference:
    """A program that runs without interruption on this host."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def weights_hash(self) -> str | None:
        reported = ControlDirectory(self.folder / "control").progress()
        return reported.weights_hash if reported is not None else None


@dataclass
class Owned:
    """An installation whose machines are the hosts of a laboratory."""

    lab: Laboratory
    tradewind: Tradewind

    @property
    def cloud(self) -> StaticProvider:
        provider = self.tradewind.installation.providers["static"]
        assert isinstance(provider, StaticProvider)
        return provider

    @property
    def hosts(self) -> list[Host]:
        return list(self.lab.hosts.values())

    def json(self, *arguments: str) -> dict:
        return json.loads(self.tradewind.command(*arguments, "--output", "json").stdout)

    def host(self, run: Run) -> Host:
        return self.lab.hosts[run.offer_id.split("/")[1]]

    def training(self, job: str, *, after: Run | None = None, steps: int = 5) -> Run:
        """The job's newest run, once it has trained some steps (and is newer than `after`)."""

        def look() -> Run | None:
            newest = self.tradewind.runs(job)[-1:]
            if not newest or newest[0].training_from_ms is None or (after and newest[0].id == after.id):
                return None
            done = self.tradewind.client.jobs.get(job).step
            return newest[0] if done >= max(steps, 1) else None

        try:
            found = until("the job trains", look)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(job)}") from None
        assert found is not None
        return found

    def story(self, job: str) -> str:
        """What the control plane and the consoles of the machines say, for the message of a test that failed."""
        consoles = (host.run("tail -n 40 ~/.tradewind/machines/*/output.log", check=False) for host in self.hosts)
        return "\n".join((self.tradewind.story(job), *(done.stdout for done in consoles)))

    def instances(self, job: str) -> list[Instance]:
        ids = list(dict.fromkeys(run.instance_id for run in self.tradewind.runs(job) if run.instance_id))
        return list(self.cloud.describe(ids))

    def losses(self, job: str) -> dict[int, str]:
        """Step -> loss; a step that was repeated must have had the same loss each time."""
        found: dict[int, str] = {}
        log = self.tradewind.command("logs", job).stdout
        for step, loss in re.findall(r"loss (\d+) (\S+)", log):
            assert found.setdefault(int(step), loss) == loss, f"step {step} was repeated with another loss"
        return found


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    with (
        laboratory(["one", "two", "three"], GuardedS3()) as lab,
        lab.in_office(),
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in lab.environment.items():
            patch.setenv(name, value)
        hosts = {name: {**declared(lab, name)[name], "price_per_hour": price} for name, price in PRICES.items()}
        tradewind = Tradewind(
            tmp_path_factory.mktemp("owned"),
            TRADEWIND_PROVIDERS_ENABLED="static",
            TRADEWIND_PROVIDERS_STATIC_HOSTS=json.dumps(hosts),
            TRADEWIND_STORE_ROOT=f"{lab.bucket}/tradewind",
            TRADEWIND_LEASE_S="12",
            TRADEWIND_SUSPECT_AFTER_S="5",
        )
        try:
            tradewind.command("up")
            yield Owned(lab, tradewind)
        finally:
            tradewind.close()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """The same program without interruption, on this host."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "control").mkdir()
    (folder / "hurry").touch()
    spec = TrainerSpec(
        job_id="reference",
        run_id="reference",
        generation=1,
        attempt=1,
        checkpoint_root=str(folder / "checkpoints"),
        control_dir=str(folder / "control"),
        output_dir=str(folder / "outputs"),
        workdir=str(PROGRAMS),
        entry="telling:main",
        args={"hurry": str(folder / "hurry")},
        steps=STEPS,
    )
    spec.save(folder / "spec.json")
    command = ["nice", sys.executable, "-m", "trainers.runner", str(folder / "spec.json"), "--standalone"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield Reference(folder, process)
        process.kill()


def test_a_job_whose_machine_is_killed_finishes_on_another_one_to_the_same_bits(
    owned: Owned, reference: Reference
) -> None:
    assert "fail" not in {check["state"] for check in owned.json("doctor")["checks"]}
    job = submitted(owned)
    first = owned.training(job, steps=20)
    assert first.offer_id.startswith("static/one/")
    (node,) = owned.json("nodes")["nodes"]
    assert (node["instance_id"], node["listed"], node["job"]) == (first.instance_id, True, "far")
    assert node["nano_usd_per_hour"] == usd(PRICES["one"])
    assert owned.tradewind.command("ssh", "far", "--", "hostname").stdout == "one\n"

    owned.host(first).crash()
    second = owned.training(job, after=first)
    assert owned.host(second) is not owned.host(first)
    owned.host(first).reboot()  # now it can say until when the first machine lasted
    hurry(owned)
    owned.tradewind.ended(job, "finished")

    assert reference.process.wait() == 0
    assert owned.losses(job) == dict(losses(reference.folder))
    assert owned.tradewind.weights_hash(job) == reference.weights_hash
    owned.tradewind.command("fetch", "far", "--to", str(owned.tradewind.work / "fetched"))
    assert [path.read_text() for path in (owned.tradewind.work / "fetched").rglob("notes.txt")] == ["trained\n"]
    books_are_exact(owned, job)
    nothing_is_left(owned)


def submitted(owned: Owned) -> str:
    document = {
        "name": "far",
        "train": {"workdir": str(PROGRAMS), "entry": "telling:main", "steps": STEPS, "args": {"hurry": HURRY}},
        "resources": {"cpu": 1},
    }
    path = owned.tradewind.work / "far.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return owned.json("submit", str(path), "--yes", "--no-profile")["id"]


def hurry(owned: Owned) -> None:
    for host in owned.hosts:
        host.run(f"touch {HURRY}")


def books_are_exact(owned: Owned, job: str) -> None:
    """The ledger has what the hosts measured, at the declared prices."""
    expected: Mapping[str, int] = {
        instance.id: cost_nano_usd(
            [(0, usd(PRICES[instance.offer_id.split("/")[1]]))], instance.billed_from_ms, instance.billed_to_ms
        )
        for instance in owned.instances(job)
    }
    assert len(expected) == 2
    assert owned.tradewind.client.jobs.get(job).paid_nano_usd == sum(expected.values())


def nothing_is_left(owned: Owned) -> None:
    until("no machine is up", lambda: not owned.json("nodes")["nodes"])
    for host in owned.hosts:
        assert host.processes() == {}
        left = host.run("find /tmp /dev/shm ~/.tradewind -type f -o -type s").stdout.split()
        records = {"beat", "ended", "ending", "output.log", "record.json", "supervisor", "lock", "deadline"}
        assert {Path(path).name for path in left} - {Path(HURRY).name} <= records, left
