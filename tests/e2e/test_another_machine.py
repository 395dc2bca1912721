"""Machines that share nothing with the control plane: four hosts behind sshd in namespaces, and a bucket between them.

A job trains on one, where kill -9 ends every process, moves on from another, and finishes on a third to the same bits:
what its checkpoints have in common was there before. A job on two hosts with two processes each finishes on the two
others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
from trainers.objects.opening import open_store
from trainers.spec import TrainerSpec

pytestmark = pytest.mark.ray

STEPS = 120
FROZEN_MB = 5
HURRY = "/tmp/hurry"
REGIONS = {"one": "near", "two": "near", "three": "far", "four": "far"}
PRICES = {"near": 0.8, "far": 1.2}
PROCESSES = 2
TELLING = {"entry": "telling:main", "steps": STEPS}


@dataclass
class Reference:
    """A program that runs without interruption on this host."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def weights_hash(self) -> str | None:
        reported = ControlDirectory(self.folder / "control").progress()
        return reported.weights_hash if reported is not None else None

    def of_rank(self, rank: int) -> Path:
        return self.folder if rank == 0 else self.folder / "ranks" / str(rank)


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

    def host(self, instance_id: str | None) -> Host:
        assert instance_id is not None
        return self.lab.hosts[instance_id.split("-")[1]]

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
        ids = dict.fromkeys(each for run in self.tradewind.runs(job) for each in run.instance_ids)
        return list(self.cloud.describe(list(ids)))

    def losses(self, job: str) -> dict[int, dict[int, str]]:
        """Rank -> step -> loss; a step that was repeated must have had the same loss each time."""
        found: dict[int, dict[int, str]] = defaultdict(dict)
        for line in self.tradewind.client.jobs.logs(job):
            for step, loss in re.findall(r"loss (\d+) (\S+)", line.text):
                before = found[line.rank or 0].setdefault(int(step), loss)
                assert before == loss, f"step {step} was repeated with another loss"
        return found


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    with (
        laboratory(list(REGIONS), GuardedS3()) as lab,
        lab.in_office(),
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in lab.environment.items():
            patch.setenv(name, value)
        hosts = {
            name: {**declared(lab, name)[name], "region": region, "price_per_hour": PRICES[region]}
            for name, region in REGIONS.items()
        }
        tradewind = Tradewind(
            tmp_path_factory.mktemp("owned"),
            TRADEWIND_PROVIDERS_ENABLED="static",
            TRADEWIND_PROVIDERS_STATIC_HOSTS=json.dumps(hosts),
            TRADEWIND_STORE_ROOT=f"{lab.bucket}/tradewind",
            TRADEWIND_LEASE_S="12",
            TRADEWIND_SUSPECT_AFTER_S="5",
        )
        try:
            tradewind.up()
            yield Owned(lab, tradewind)
        finally:
            tradewind.close()


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Reference]]:
    """The same program without interruption, on this host, by its number of processes."""
    with ExitStack() as stack:
        yield {
            processes: stack.enter_context(
                uninterrupted(tmp_path_factory.mktemp("uninterrupted"), processes, frozen_mb=frozen_mb)
            )
            for processes, frozen_mb in ((1, FROZEN_MB), (2 * PROCESSES, 0))
        }


@contextmanager
def uninterrupted(folder: Path, processes: int, steps: int = STEPS, frozen_mb: int = 0) -> Iterator[Reference]:
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
        args={"hurry": str(folder / "hurry"), "frozen_mb": frozen_mb},
        steps=steps,
        processes=processes,
    )
    spec.save(folder / "spec.json")
    command = ["nice", sys.executable, "-m", "trainers.runner", str(folder / "spec.json"), "--standalone"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield Reference(folder, process)
        process.kill()


def test_a_job_whose_machine_is_killed_finishes_on_another_one_to_the_same_bits(
    owned: Owned, references: dict[int, Reference]
) -> None:
    assert "fail" not in {check["state"] for check in owned.json("doctor")["checks"]}
    job = submitted(owned, "alone", {**TELLING, "args": {"hurry": HURRY, "frozen_mb": FROZEN_MB}}, cpu=1)
    first = owned.training(job, steps=20)
    assert first.offer_id.startswith("static/near/")
    (node,) = owned.json("nodes")["nodes"]
    assert (node["instance_id"], node["listed"], node["job"]) == (first.instance_id, True, "alone")
    assert node["nano_usd_per_hour"] == usd(PRICES["near"])
    killed = owned.host(first.instance_id)
    assert owned.tradewind.command("ssh", "alone", "--", "hostname").stdout == f"{killed.name}\n"

    killed.crash()
    second = owned.training(job, after=first)
    assert owned.host(second.instance_id) is not killed
    killed.reboot()  # now it can say until when the first machine lasted
    assert (
        "ready; it has already fetched 5.3 MB of the checkpoint" in owned.tradewind.events(job, "migration.ready")[-1]
    )

    bucket = open_store(f"{owned.lab.bucket}/tradewind/checkpoints").child(job)
    until(
        "it has a checkpoint of its own",
        lambda: any(key.startswith("manifests/2-") for key in bucket.keys("manifests")),
    )
    owned.tradewind.command("migrate", "alone")
    third = owned.training(job, after=second)
    assert third.repeated_steps == 0
    assert (
        "ready; it has already fetched 5.2 MB of the checkpoint" in owned.tradewind.events(job, "migration.ready")[-1]
    )
    hurry(owned)
    owned.tradewind.ended(job, "finished")
    log = owned.tradewind.command("logs", job).stdout
    assert re.findall(r"(\S+ MB) of the checkpoint were fetched ahead", log) == ["5.3 MB", "5.2 MB"]

    reference = references[1]
    assert reference.process.wait() == 0
    same_losses(owned.losses(job)[0], dict(losses(reference.folder)), second)
    assert owned.tradewind.weights_hash(job) == reference.weights_hash
    assert fetched(owned, "alone") == {"notes.txt": "trained\n"}
    books_are_exact(owned, job, machines=3)
    nothing_is_left(owned)


def test_a_program_that_calls_nothing_of_ours_finds_its_own_checkpoints_on_another_machine(owned: Owned) -> None:
    """Its folder goes through the bucket with the access that the machines are lent, and the bucket enforces that."""
    calm(owned)
    job = submitted(owned, "own", {"script": "owns.py"}, cpu=1)
    bucket = open_store(f"{owned.lab.bucket}/tradewind/checkpoints").child(job)
    until("its folder is in the bucket", lambda: bucket.keys("own/states"))
    (first,) = owned.tradewind.runs(job)
    killed = owned.host(first.instance_id)

    killed.crash()
    until("another run has begun", lambda: any(run.training_from_ms for run in owned.tradewind.runs(job)[1:]))
    killed.reboot()
    hurry(owned)
    owned.tradewind.ended(job, "finished")

    assert re.findall(r"begins at (\d+)", owned.tradewind.log(job))[-1] == "100"
    assert fetched(owned, "own") == {"counted.txt": "400\n"}
    books_are_exact(owned, job, machines=2)
    nothing_is_left(owned)


@pytest.mark.timeout(300)  # starts ten processes with torch on two pairs of hosts, one after the other
def test_a_job_on_two_hosts_that_loses_one_finishes_on_two_others_to_the_same_bits(
    owned: Owned, references: dict[int, Reference]
) -> None:
    calm(owned)
    job = submitted(owned, "together", cpu=1, nodes=2, processes=PROCESSES)
    first = owned.training(job, steps=20)
    near = [owned.host(each) for each in first.instance_ids]
    assert {REGIONS[each.name] for each in near} == {"near"}
    nodes = owned.tradewind.client.nodes.list().nodes
    assert {(node.rank, node.instance_id in first.instance_ids, node.listed) for node in nodes} == {
        (0, True, True),
        (1, True, True),
    }
    assert {node.instance_id for node in nodes} == set(first.instance_ids)
    for host in near:
        documented_ports_only(host)

    killed = owned.host(next(node.instance_id for node in nodes if node.rank == 1))
    killed.crash()
    second = owned.training(job, after=first)
    assert {REGIONS[owned.host(each).name] for each in second.instance_ids} == {"far"}
    killed.reboot()
    hurry(owned)
    owned.tradewind.ended(job, "finished")

    reference = references[2 * PROCESSES]
    assert reference.process.wait() == 0
    found = owned.losses(job)
    for rank in range(2 * PROCESSES):
        same_losses(found[rank], dict(losses(reference.of_rank(rank))), second)
    assert owned.tradewind.weights_hash(job) == reference.weights_hash
    shipped = {f"notes-{rank}.txt": f"trained as {rank}\n" for rank in range(2 * PROCESSES)}
    assert fetched(owned, "together") == {"notes.txt": "trained\n", **shipped}
    books_are_exact(owned, job, machines=4)
    nothing_is_left(owned)


def documented_ports_only(host: Host) -> None:
    """Besides sshd, what listens where others can reach it has a port that the system chose (docs/machines.md)."""
    low, high = map(int, host.run("cat /proc/sys/net/ipv4/ip_local_port_range").stdout.split())
    sockets = [line.split() for line in host.run("cat /proc/net/tcp /proc/net/tcp6").stdout.splitlines()]
    found = {int(each[1].rpartition(":")[2], 16) for each in sockets if each[3] == "0A"}
    assert 22 in found
    assert len(found) > 1
    assert all(low <= port <= high for port in found - {22}), found


def submitted(owned: Owned, name: str, program: Mapping[str, object] = TELLING, **resources: int) -> str:
    document = {
        "name": name,
        "train": {"workdir": str(PROGRAMS), "args": {"hurry": HURRY}, **program},
        "resources": resources,
    }
    path = owned.tradewind.work / f"{name}.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return owned.tradewind.client.jobs.submit(path).id


def hurry(owned: Owned) -> None:
    for host in owned.hosts:
        host.run(f"touch {HURRY}")


def calm(owned: Owned) -> None:
    for host in owned.hosts:
        host.run(f"rm -f {HURRY}")


def same_losses(found: Mapping[int, str], uninterrupted: Mapping[int, str], resumed: Run) -> None:
    """A machine that is lost takes the last seconds of its log with it; what it did is in the checkpoint."""
    assert found == {step: uninterrupted[step] for step in found}
    lost = uninterrupted.keys() - found.keys()
    assert all(step <= resumed.start_step for step in lost), f"of steps {sorted(lost)} there is no loss"
    assert len(found) > STEPS / 2


def fetched(owned: Owned, name: str) -> dict[str, str]:
    folder = owned.tradewind.work / f"fetched-{name}"
    owned.tradewind.client.jobs.fetch(name, folder)
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def books_are_exact(owned: Owned, job: str, *, machines: int) -> None:
    """The ledger has what the hosts measured, at the declared prices, besides estimates of what leaves the bucket."""
    expected: Mapping[str, int] = {
        instance.id: cost_nano_usd(
            [(0, usd(PRICES[instance.offer_id.split("/")[1]]))], instance.billed_from_ms, instance.billed_to_ms
        )
        for instance in owned.instances(job)
    }
    assert len(expected) == machines
    with owned.tradewind.installation.store.read() as tx:
        estimated = sum(each.amount_nano_usd for each in tx.entries(job) if each.kind == "egress_estimate")
    assert owned.tradewind.client.jobs.get(job).paid_nano_usd == sum(expected.values()) + estimated


def nothing_is_left(owned: Owned) -> None:
    until("no machine is up", lambda: not owned.tradewind.client.nodes.list().nodes)
    # The daemon goes on asking owned hosts what they run: each such question ends by itself.
    until("no process is left", lambda: not any(host.processes() for host in owned.hosts))
    for host in owned.hosts:
        left = host.run("find /tmp /dev/shm ~/.tradewind -type f -o -type s").stdout.split()
        records = {"beat", "ended", "ending", "output.log", "record.json", "supervisor", "lock", "deadline"}
        assert {Path(path).name for path in left} - {Path(HURRY).name} <= records, left
