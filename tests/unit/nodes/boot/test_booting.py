"""User data on real processes: what it finds out about a machine that cannot be used, and whom it tells."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_SH, flock
from functools import cache
from pathlib import Path

import pytest

from orchestrator.engine.node_runtime import NodeRuntime
from orchestrator.errors import SiteError
from orchestrator.formats.codec import loads
from orchestrator.nodes import sealing
from orchestrator.nodes.access import aws
from orchestrator.nodes.access.grants import NoLimitedAccess
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.boot import launching, program
from orchestrator.nodes.boot.contact import Contact, Urls
from orchestrator.nodes.boot.launching import RENEWED_S, Launching, Remote
from orchestrator.nodes.boot.runtime_files import RuntimeFiles, runtime_files
from orchestrator.nodes.boot.user_data import MOST_BYTES
from orchestrator.nodes.channel import Channel, control_store
from orchestrator.nodes.messages import NodeFacts
from orchestrator.nodes.seating import take_seat
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import Fault, LoopbackServer, serving
from tests.disks import mounted
from tests.machines_from_nothing import Host, in_session
from tests.wheels import wheel
from trainers.errors import StoreNotFound, StoreReadOnly
from trainers.objects.opening import open_store

TOKEN = "launch-1"
KEY = b"k" * 32
PATIENCE_S = 60.0


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251


@pytest.fixture(scope="module")
def s3() -> GuardedS3:
    return GuardedS3()


@pytest.fixture(scope="module")
def server(s3: GuardedS3) -> Iterator[LoopbackServer]:
    with serving(s3) as started, pytest.MonkeyPatch.context() as patch:
        s3.lead_to(started, patch)
        yield started


CACHED = cache(runtime_files)


@dataclass
class Plane:
    """The control plane's end."""

    root: str
    clock: Callable[[], datetime] = now
    files: Callable[[], RuntimeFiles] = CACHED

    def launching(self) -> Launching:
        return Launching(self.root, "install", lambda: KEY, Issuer(now), self.clock, files=self.files)

    def user_data(self, token: str = TOKEN, *, gpu: str | None = None, gpu_count: int = 0) -> str:
        return self.launching().user_data(token, Remote("job-1", "run-1", f"{self.root}/checkpoints", gpu, gpu_count))

    def told(self, token: str = TOKEN) -> NodeFacts:
        facts = Channel(open_store(f"{self.root}/control/install"), token).facts()
        assert facts is not None
        boot_token = sealing.boot_token(KEY, token)
        assert sealing.is_proven(boot_token, facts.boot, facts.public_key, facts.proof, facts.error)
        return facts


@pytest.fixture
def plane(s3: GuardedS3, server: LoopbackServer, request: pytest.FixtureRequest) -> Plane:
    return Plane(f"s3://{s3.bucket}/{request.node.name.replace('[', '-').replace(']', '')[:60]}")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.end()


def refused(host: Host, plane: Plane, user_data: str, **variables: str) -> str:
    """What a machine that cannot be used tells the control plane, and its console; it leaves nothing running."""
    process = host.boot(user_data, **variables)
    assert process.wait(PATIENCE_S) == 1
    return said_why(host, plane, process)


def said_why(host: Host, plane: Plane, process: subprocess.Popen[bytes]) -> str:
    facts = plane.told()
    assert facts.public_key == ""
    assert facts.error in host.said()
    assert not in_session(process.pid)
    return facts.error


# What the control plane makes


def test_user_data_is_short_and_the_same_for_the_same_token(plane: Plane) -> None:
    text = plane.user_data()
    assert len(text.encode()) < MOST_BYTES
    plane.clock = lambda: now() + timedelta(minutes=5)
    assert plane.user_data() == text
    assert plane.user_data("launch-2") != text
    assert text.startswith("#!/usr/bin/env bash\n")


def test_user_data_holds_no_key_of_the_store_and_is_stored_only_sealed(plane: Plane, s3: GuardedS3) -> None:
    text = plane.user_data()
    assert s3.secret not in unpacked(text)
    store = open_store(plane.root)
    boot_token = sealing.boot_token(KEY, TOKEN).encode()
    for key in store.keys():  # noqa: SIM118
        found = store.get(key, 1 << 24)
        assert found is not None
        assert boot_token not in found.data, key
        assert b"X-Amz-Signature" not in found.data, key


def unpacked(text: str) -> str:
    """User data with what is compressed in it."""
    packed = re.findall(r'b85decode\("([^"]+)"\)', text)
    assert len(packed) == 2
    return "".join([text, *(zlib.decompress(base64.b85decode(each)).decode() for each in packed)])


def test_another_installation_cannot_use_what_one_has_made(plane: Plane) -> None:
    plane.user_data()
    other = Launching(plane.root, "install", lambda: b"o" * 32, Issuer(now), now)
    with pytest.raises(SiteError, match="key of this installation") as caught:
        other.user_data(TOKEN, Remote("job-1", "run-1", f"{plane.root}/checkpoints"))
    assert "its own store_root" in caught.value.hint


def test_a_long_session_token_of_the_control_plane_still_fits(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "own_credentials", lambda _: launching_credentials("t" * 1800))
    monkeypatch.setattr(Issuer, "issue", lambda *_: None)
    assert len(plane.user_data().encode()) < MOST_BYTES


def launching_credentials(token: str) -> object:
    from orchestrator.nodes.access.signing import Credentials

    return Credentials("ASIAKEY", "hidden", token)


def test_the_runtime_is_stored_once(plane: Plane, server: LoopbackServer) -> None:
    before = len(server.requests)
    plane.user_data("a")
    plane.launching().user_data("b", Remote("job-1", "run-1", f"{plane.root}/checkpoints"))
    puts = [each for each in server.requests[before:] if each.method == "PUT" and "/runtime/" in each.path]
    assert len(puts) == 1


def test_each_launch_keeps_the_runtime_from_being_deleted_as_unused(plane: Plane, server: LoopbackServer) -> None:
    launching = plane.launching()
    remote = Remote("job-1", "run-1", f"{plane.root}/checkpoints")
    launching.user_data("a", remote)
    store = open_store(plane.root)
    (key,) = store.keys("runtime")
    store.delete(key)
    launching.user_data("b", remote)
    assert store.keys("runtime") == [key]
    before = len(server.requests)
    later = replace(plane, clock=lambda: now() + timedelta(seconds=RENEWED_S + 60))
    later.launching().user_data("c", remote)
    assert [each.method for each in server.requests[before:] if each.path.endswith(key)] == ["HEAD", "PUT"]


def test_the_same_files_are_the_same_runtime() -> None:
    files = runtime_files()
    assert files.digest == runtime_files().digest
    assert len(files.archive) < 4 << 20


def test_a_store_without_limited_credentials_rents_nothing(plane: Plane, s3: GuardedS3) -> None:
    s3.with_sts = False
    try:
        with pytest.raises(NoLimitedAccess):
            plane.user_data()
    finally:
        s3.with_sts = True


def test_a_read_only_store_rents_nothing(plane: Plane, s3: GuardedS3) -> None:
    s3.read_only = True
    try:
        with pytest.raises(StoreReadOnly):
            plane.user_data()
    finally:
        s3.read_only = False


def test_a_store_in_another_region_rents_nothing(plane: Plane, s3: GuardedS3) -> None:
    s3.region = "eu-central-1"
    try:
        with pytest.raises(StoreNotFound, match="another region") as caught:
            plane.user_data()
        assert "AWS_REGION" in caught.value.hint
    finally:
        s3.region = "us-east-1"


def test_a_folder_rents_nothing(tmp_path: Path) -> None:
    plane = Plane(str(tmp_path))
    with pytest.raises(SiteError, match="cannot reach") as caught:
        plane.user_data()
    assert "store_root" in caught.value.hint


def test_two_installations_share_a_bucket_and_nothing_but_the_runtime(plane: Plane) -> None:
    plane.user_data()
    other = Launching(plane.root, "other", lambda: b"o" * 32, Issuer(now), now, files=CACHED)
    other.user_data(TOKEN, Remote("job-2", "run-2", f"{plane.root}/checkpoints"))
    (first, second) = (each.scope(TOKEN) for each in (plane.launching(), other))
    assert first is not None
    assert second is not None
    assert not set(first.writes) & set(second.writes)
    assert first.reads == second.reads


def test_what_is_stored_for_a_machine_that_never_started_is_deleted_with_its_run(plane: Plane, tmp_path: Path) -> None:
    runtime = NodeRuntime(
        control_store(f"{plane.root}/control/install"),
        key=lambda: KEY,
        runs_dir=tmp_path / "runs",
        environments=tmp_path / "environments",
        temp_dir=tmp_path / "ray",
        lease_s=60.0,
        launching=plane.launching(),
    )
    runtime.bootstrap(token=TOKEN, remote=Remote("job-1", "run-1", f"{plane.root}/checkpoints"))
    assert runtime.known() == ["run-1"]
    runtime.forget("run-1")
    assert open_store(plane.root).keys("control") == []


# What a machine finds out about itself


def test_without_a_python_it_says_so(plane: Plane, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "curl").symlink_to(shutil.which("curl") or "curl")
    (tools / "python3").write_text("#!/bin/sh\nexit 4\n")  # Python 3.10
    (tools / "python3").chmod(0o755)
    text = plane.user_data().replace("/opt/*/bin/python3 /usr/local/bin/python3", "")
    host = Host(tmp_path, str(tools))
    assert "no Python 3.11" in refused(host, plane, text)


def test_a_wheel_with_another_hash_is_not_installed(plane: Plane, host: Host) -> None:
    text = plane.user_data()
    store = open_store(plane.root)
    (archive,) = store.keys("runtime")
    store.put(archive, b"forged")
    error = refused(host, plane, text)
    assert "SHA-256" in error
    assert f"delete {store.where(archive)}" in error
    assert not list(host.home.rglob("orchestrator"))


def test_too_little_disk_is_named(plane: Plane, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "DISK_BYTES", 1 << 60)
    error = refused(host, plane, plane.user_data())
    assert "GiB free" in error
    assert "larger disk" in error


def test_another_architecture_is_named(plane: Plane, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "MACHINES", ("s390x",))
    assert "not Linux on s390x" in refused(host, plane, plane.user_data())


@pytest.mark.parametrize("listed", [(), ("NVIDIA A10G",), ("NVIDIA H100 80GB HBM3",)], ids=["none", "other", "few"])
def test_gpus_that_are_not_as_declared_are_named(plane: Plane, tmp_path: Path, listed: tuple[str, ...]) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in listed))
    (tools / "nvidia-smi").chmod(0o755)
    host = Host(tmp_path)
    host.environment["PATH"] = f"{tools}:{host.environment['PATH']}"
    error = refused(host, plane, plane.user_data(gpu="H100", gpu_count=2))
    assert "2 x H100" in error
    assert all(name in error for name in listed)


def test_a_wrong_clock_is_named(plane: Plane, host: Host, server: LoopbackServer, s3: GuardedS3) -> None:
    """The machine's clock cannot be changed here: the store's is."""
    text = plane.user_data()
    honest = server.cloud
    server.cloud = lambda request: dated(honest(request))
    try:
        assert "60 minutes fast" in refused(host, plane, text)
    finally:
        server.cloud = honest


def test_a_wrong_clock_is_named_also_where_the_runtime_is_already(
    plane: Plane, host: Host, server: LoopbackServer
) -> None:
    """As on each machine that somebody owns, from the second launch on."""
    prepared(plane, host)
    honest, text = server.cloud, plane.user_data()
    server.cloud = lambda request: dated(honest(request))
    try:
        assert "60 minutes fast" in refused(host, plane, text)
    finally:
        server.cloud = honest


def prepared(plane: Plane, host: Host) -> Path:
    """Boot another machine there before, without an agent. Returns the folder of the runtime's packages."""
    text = plane.user_data("launch-0").replace("boot(json", "_run_agent = print; boot(json")
    assert host.boot(text).wait(PATIENCE_S) == 0, host.said()
    (packages,) = host.home.glob(".cache/tradewind/runtime/*/lib/python*/site-packages")
    return packages


def test_an_agent_that_cannot_start_is_named(plane: Plane, host: Host) -> None:
    agent = prepared(plane, host) / "orchestrator" / "nodes" / "agent.py"
    agent.write_text("raise ImportError('libnothing.so: failed to map segment')")
    process = host.boot(plane.user_data())
    process.wait(PATIENCE_S)
    assert "libnothing.so: failed to map segment" in said_why(host, plane, process)


def test_a_damaged_runtime_is_built_again_by_the_next_start(plane: Plane, host: Host) -> None:
    packages = prepared(plane, host)
    agent = packages / "orchestrator" / "nodes" / "agent.py"
    whole = agent.read_text()
    agent.write_bytes(b"\0" * 100)  # as a power failure leaves it
    host.boot(plane.user_data()).wait(PATIENCE_S)
    assert "source code" in plane.told().error
    prepared(plane, host)
    assert agent.read_text() == whole


def test_a_runtime_whose_python_is_gone_is_built_again(plane: Plane, host: Host) -> None:
    python = prepared(plane, host).parents[2] / "bin" / "python"
    right = python.readlink()
    python.unlink()
    python.symlink_to("/usr/bin/python3.gone")
    prepared(plane, host)
    assert python.readlink() == right


def test_a_runtime_that_a_machine_uses_is_not_deleted_however_old(plane: Plane, host: Host) -> None:
    runtimes = prepared(plane, host).parents[3]
    for name in ("used", "unused"):
        (runtimes / name).mkdir()
        (runtimes / name / "complete").touch()
        for each in (runtimes / name / "complete", runtimes / name):
            os.utime(each, (0, 0))
    with (runtimes / "used.used").open("w") as lock:
        flock(lock, LOCK_SH)
        program._forget_others(runtimes / "new")
    assert (runtimes / "used").exists()
    assert not (runtimes / "unused").exists()


def test_a_folder_that_cannot_be_made_is_named(plane: Plane, host: Host) -> None:
    prepared(plane, host)
    (host.home / "file").touch()
    error = refused(host, plane, plane.user_data(), TRADEWIND_INSTANCE_DIR=str(host.home / "file" / "machine\udcff"))
    assert "NotADirectoryError" in error


def test_a_runtime_of_which_half_arrived_is_asked_for_again(plane: Plane, host: Host, server: LoopbackServer) -> None:
    fetched = Fault(lambda request: request.method == "GET" and request.path.endswith("runtime.zip"), cut=True)
    server.faults.append(fetched)
    prepared(plane, host)
    assert not fetched.times


def dated(answer):  # type: ignore[no-untyped-def]
    from dataclasses import replace
    from email.utils import format_datetime

    return replace(answer, headers={**answer.headers, "Date": format_datetime(now() - timedelta(hours=1), usegmt=True)})


def test_a_machine_that_started_too_late_says_so_on_its_console(plane: Plane, host: Host, s3: GuardedS3) -> None:
    text = plane.user_data()
    s3.late = timedelta(hours=2)
    try:
        assert host.boot(text).wait(PATIENCE_S) == 1
    finally:
        s3.late = timedelta()
    assert "more than an hour" in host.said()
    assert "report to the control plane failed: 403" in host.said()


def test_what_a_machine_lacks_is_installed_in_the_control_planes_version_and_nothing_else(
    plane: Plane, host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from orchestrator.nodes.boot import runtime_files as files

    honest = files.required
    monkeypatch.setattr(files, "required", lambda *_: [*honest(*_), "tw-extra==1.0"])
    plane.files = runtime_files
    index = tmp_path / "index"
    index.mkdir()
    for version in ("0.9", "1.0", "1.1"):
        wheel(index, "tw_extra", version)
    text = plane.user_data().replace("boot(json", "_run_agent = print; boot(json")
    assert host.boot(text, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index)).wait(PATIENCE_S) == 0, host.said()
    (packages,) = host.home.glob(".cache/tradewind/runtime/*/lib/python*/site-packages")
    assert "VERSION = '1.0'" in (packages / "tw_extra.py").read_text()
    assert not (packages / "torch").exists(), "it is used from where it is"


def test_packages_that_cannot_be_installed_are_named(plane: Plane, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.nodes.boot import runtime_files as files

    honest = files.required
    monkeypatch.setattr(files, "required", lambda *_: [*honest(*_), "no-such-package-of-tradewind==1.0"])
    plane.files = runtime_files
    error = refused(host, plane, plane.user_data(), PIP_NO_INDEX="1")
    assert "pip could not install" in error
    assert "no-such-package-of-tradewind" in error
    assert not list(host.home.glob(".cache/tradewind/runtime/*/")), "half a runtime fills the disk"


def test_a_disk_that_is_full_in_the_middle_is_named_and_not_kept_full(
    plane: Plane, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "DISK_BYTES", 0)
    (host.home / ".cache").mkdir()
    with mounted(host.home / ".cache", "size=2m") as disk:
        error = refused(host, plane, plane.user_data())
        assert "disk is full" in error
        assert "larger disk" in error
        assert not list(disk.glob("tradewind/runtime/*/"))


def test_two_starts_at_once_build_the_runtime_once(plane: Plane, host: Host, server: LoopbackServer) -> None:
    texts = [plane.user_data(token).replace("boot(json", "_run_agent = print; boot(json") for token in ("a", "b")]
    before = len(server.requests)
    first = host.boot(texts[0])
    second = Host(host.home.parent).boot(texts[1])
    assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
    fetched = [each for each in server.requests[before:] if each.path.endswith("runtime.zip")]
    assert len(fetched) == 1
    (python,) = host.home.glob(".cache/tradewind/runtime/*/bin/python")
    code = "import orchestrator, trainers; print(orchestrator.__file__, trainers.__file__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd="/", env={}).stdout
    assert [Path(path).is_relative_to(host.home) for path in found.split()] == [True, True]


def test_a_build_that_was_interrupted_is_repeated(plane: Plane, host: Host) -> None:
    text = plane.user_data().replace("boot(json", "_run_agent = print; boot(json")
    host.boot(text).wait(PATIENCE_S)
    (done,) = host.home.glob(".cache/tradewind/runtime/*/complete")
    done.unlink()
    (done.parent / "bin" / "python").unlink()
    assert host.boot(text).wait(PATIENCE_S) == 0
    assert done.exists()
    assert (done.parent / "bin" / "python").exists()


def test_a_machine_does_not_speak_for_another(plane: Plane, host: Host) -> None:
    """What it tells is proven with its own boot token."""
    facts = NodeFacts("x", "", sealing.error_proof(sealing.boot_token(KEY, "launch-2"), "x", "forged"), "forged")
    assert not sealing.is_proven(sealing.boot_token(KEY, TOKEN), facts.boot, facts.public_key, facts.proof, facts.error)
    assert not sealing.is_proven(
        sealing.boot_token(KEY, "launch-2"), facts.boot, facts.public_key, facts.proof, "another text"
    )


# GPUs as nvidia-smi names them

NAMES = [
    ("H100", "NVIDIA H100 80GB HBM3"),
    ("H100-PCIE", "NVIDIA H100 PCIe"),
    ("A100-80GB", "NVIDIA A100-SXM4-80GB"),
    ("A100-40GB", "NVIDIA A100-PCIE-40GB"),
    ("V100", "Tesla V100-SXM2-16GB"),
    ("V100-32GB", "Tesla V100-SXM2-32GB"),
    ("T4", "Tesla T4"),
    ("L4", "NVIDIA L4"),
    ("L40S", "NVIDIA L40S"),
    ("RTX-4090", "NVIDIA GeForce RTX 4090"),
    ("RTX-6000-ADA", "NVIDIA RTX 6000 Ada Generation"),
    ("A4000", "NVIDIA RTX A4000"),
]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_gpu_is_recognised_by_its_name(kind: str, name: str) -> None:
    program._check_gpus(kind, 1, [name])


@pytest.mark.parametrize(("kind", "name"), [("L4", "NVIDIA L40S"), ("A100-80GB", "NVIDIA A100-SXM4-40GB")])
def test_a_similar_gpu_is_another_one(kind: str, name: str) -> None:
    with pytest.raises(program.Unfit, match="declared"):
        program._check_gpus(kind, 1, [name])


def test_the_program_needs_nothing_but_the_standard_library() -> None:
    code = f"import runpy; runpy.run_path({program.__file__!r}, run_name='boot')"
    subprocess.run([shutil.which("python3") or "python3", "-I", "-S", "-c", code], check=True, env={"PATH": os.defpath})


# Several machines of one run


def test_user_data_of_many_machines_is_one_short_text_and_their_urls_are_stored_locked(
    plane: Plane, s3: GuardedS3
) -> None:
    text = plane.launching().user_data(TOKEN, remote(plane), 500)
    assert len(text.encode()) < MOST_BYTES
    assert plane.launching().user_data(TOKEN, remote(plane), 500) == text
    found = open_store(plane.root).get(f"control/install/{TOKEN}/seats", 1 << 24)
    assert found is not None
    assert b"X-Amz-Signature" not in found.data


def remote(plane: Plane) -> Remote:
    return Remote("job-1", "run-1", f"{plane.root}/checkpoints")


def contacts(plane: Plane, text: str, nodes: int) -> list[Contact]:
    """How the machines that boot from this text reach the objects of their ranks."""
    given = program_config(text)
    seats = Contact(loads(Urls, json.dumps(given["urls"]))).seats(str(given["boot_token"]))
    return [Contact(seats, rank) for rank in range(nodes)]


def program_config(text: str) -> dict[str, object]:
    packed = re.findall(r'b85decode\("([^"]+)"\)', text)[1]
    return json.loads(zlib.decompress(base64.b85decode(packed)))


def test_machines_without_credentials_take_their_seats_once_each(plane: Plane) -> None:
    text = plane.launching().user_data(TOKEN, remote(plane), 2)
    doors = contacts(plane, text, 2)
    assert take_seat(doors, instance="a", boot="1") == 0
    assert take_seat(doors, instance="b", boot="1") == 1
    assert take_seat(doors, instance="a", boot="1") == 0, "its agent starts again"
    assert take_seat(doors, instance="a", boot="2") is None
    assert take_seat(doors, instance="c", boot="1") is None
    assert doors[0].facts() is None
    assert doors[1].put_facts(NodeFacts("boot", "key", "proof", ray="10.0.0.1:4000"))
    assert doors[0].facts() is None
    told = doors[1].facts()
    assert told is not None
    assert told.ray == "10.0.0.1:4000"


def test_a_machine_of_several_may_reach_its_own_control_objects_only(plane: Plane) -> None:
    plane.launching().user_data(TOKEN, remote(plane), 2)
    first, second = (plane.launching().scope(f"{TOKEN}/{rank}") for rank in range(2))
    assert first is not None
    assert second is not None
    assert first.writes[0].endswith(f"/control/install/{TOKEN}/0")
    assert second.writes[0].endswith(f"/control/install/{TOKEN}/1")
    assert first.writes[1:] == second.writes[1:]
    assert first.reads == second.reads


def test_seats_of_another_launch_are_not_taken(plane: Plane) -> None:
    text = plane.launching().user_data(TOKEN, remote(plane), 2)
    given = program_config(text)
    with pytest.raises(SiteError, match="seats"):
        Contact(loads(Urls, json.dumps(given["urls"]))).seats("f" * 64)


def test_one_of_several_machines_that_cannot_be_used_says_which_it_is(
    plane: Plane, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "MACHINES", ("s390x",))
    text = plane.launching().user_data(TOKEN, remote(plane), 2)
    assert host.boot(text, TRADEWIND_INSTANCE_ID="static-desk1-x").wait(PATIENCE_S) == 1
    assert plane.told().error.startswith("static-desk1-x: this machine is ")
