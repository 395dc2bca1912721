"""User data on real processes: what it finds out about a machine that cannot be used, and whom it tells."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from fcntl import LOCK_SH, flock
from pathlib import Path

import pytest

from orchestrator.nodes import sealing
from orchestrator.nodes.boot import launching, program
from orchestrator.nodes.boot.runtime_files import runtime_files
from orchestrator.nodes.messages import NodeFacts
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import Fault, LoopbackServer
from tests.disks import mounted
from tests.machines_from_nothing import Host
from tests.unit.nodes.boot.conftest import KEY, PATIENCE_S, TOKEN, Plane, now, refused, remote, said_why
from tests.wheels import wheel
from trainers.objects.opening import open_store

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
    assert "source code" in plane.reported().error
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


def test_one_of_several_machines_that_cannot_be_used_says_which_it_is(
    plane: Plane, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "MACHINES", ("s390x",))
    text = plane.launching().user_data(TOKEN, remote(plane), 2)
    assert host.boot(text, TRADEWIND_INSTANCE_ID="static-desk1-x").wait(PATIENCE_S) == 1
    assert plane.reported().error.startswith("static-desk1-x: this machine is ")
