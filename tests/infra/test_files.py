"""What `infra/` holds, checked by the tools that read it. Nothing is started, and nothing leaves this machine.

The Terraform module is also applied and destroyed, on a loopback AWS (tests/infra/test_terraform.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft4Validator

from orchestrator.config import load_config
from scripts import cloud_init

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
UNITS = sorted((INFRA / "systemd").iterdir())
CLOUD_INIT = INFRA / "cloud-init" / "control-plane.yaml"
MANIFEST = INFRA / "kubernetes" / "control-plane.yaml"
COMPOSE = INFRA / "docker" / "compose.yaml"
PROGRAM = "/opt/tradewind/bin/tradewind"


def tool(name: str) -> str:
    """The path of a program, also of one beside this Python; the test is skipped without it."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def run(*command: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]


def settings() -> Iterator[tuple[str, str]]:
    """(file, text) of every tradewind.toml in it."""
    (found,) = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ConfigMap"]
    yield MANIFEST.name, found["data"]["tradewind.toml"]
    files = {each["path"]: each["content"] for each in yaml.safe_load(CLOUD_INIT.read_text())["write_files"]}
    yield CLOUD_INIT.name, files["/etc/tradewind/tradewind.toml"]


@pytest.mark.parametrize(("name", "text"), list(settings()))
def test_every_settings_file_is_valid(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "tradewind.toml").write_text(text)
    assert tomllib.loads(text)
    assert load_config(cwd=tmp_path).providers.enabled == ("aws",)


# --- systemd ---


def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, sys.executable))
    found = run(analyze, "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS))
    assert (found.returncode, found.stderr) == (0, "")


def test_systemd_would_refuse_a_wrong_time(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    wrong = (INFRA / "systemd" / "tradewind-daily.timer").read_text().replace("=daily", "=dayly")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, sys.executable))
    (tmp_path / "tradewind-daily.timer").write_text(wrong)
    found = run(analyze, "verify", "--man=no", str(tmp_path / "tradewind-daily.timer"))
    assert found.returncode != 0 or "dayly" in found.stderr


def test_the_service_is_confined(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    found = run(analyze, "security", "--offline=true", "--threshold=40", str(INFRA / "systemd" / "tradewind.service"))
    assert found.returncode == 0, found.stdout


def test_the_commands_of_the_units_exist() -> None:
    from tests.docs.test_documents import parse

    parse(["daemon", "run"])
    parse(["store", "backup", "copy.db"])
    parse(["doctor"])
    commands = "".join(unit.read_text() for unit in UNITS)
    assert {line.split(f"{PROGRAM} ")[1].split()[0] for line in commands.splitlines() if PROGRAM in line} == {
        "daemon", "store", "doctor"
    }  # fmt: skip


# --- cloud-init ---


def test_cloud_init_accepts_the_template() -> None:
    schema = cloud_init.find()
    if schema is None:
        pytest.skip(f"cloud-init's schema is missing: {cloud_init.REMEDY}")
    known = Draft4Validator(json.loads(schema.read_text()))
    document = yaml.safe_load(CLOUD_INIT.read_text())
    assert [error.message for error in known.iter_errors(document)] == []
    document["write_files"][0]["permissions"] = 644
    assert list(known.iter_errors(document)) != []


def test_the_template_has_the_unit_of_this_folder() -> None:
    assert CLOUD_INIT.read_text().startswith("#cloud-config\n")
    files = {each["path"]: each["content"] for each in yaml.safe_load(CLOUD_INIT.read_text())["write_files"]}
    assert files["/etc/systemd/system/tradewind.service"] == (INFRA / "systemd" / "tradewind.service").read_text()


# --- containers ---


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    dockerfile = INFRA / "docker" / "Dockerfile"
    found = run(tool("hadolint"), str(dockerfile))
    assert (found.returncode, found.stdout) == (0, "")
    wrong = run(tool("hadolint"), "-", input=dockerfile.read_text().replace("FROM ", "FROM  debian:latest AS x\nFROM "))
    assert "DL3007" in wrong.stdout


def test_the_image_gets_all_that_it_copies_and_only_extras_that_exist() -> None:
    text = (INFRA / "docker" / "Dockerfile").read_text()
    copied = [word for line in text.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]]
    let_in = {
        line[1:] for line in (INFRA / "docker" / "Dockerfile.dockerignore").read_text().splitlines() if "!" in line
    }
    sources = {each for each in copied if not each.startswith(("-", "/"))}
    assert sources == let_in
    assert all((ROOT / each).exists() for each in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = text.partition('"/src[')[2].partition("]")[0].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert "train" not in extras


def test_compose_builds_that_image_and_keeps_the_state() -> None:
    document = yaml.safe_load(COMPOSE.read_text())
    (service,) = document["services"].values()
    assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    kept = {each.split(":")[0]: each.split(":")[1] for each in service["volumes"]}
    assert kept["state"] == "/var/lib/tradewind"
    assert "state" in document["volumes"]


def test_kubernetes_accepts_the_manifests(tmp_path: Path) -> None:
    validate = tool("kubernetes-validate")
    found = run(validate, "--strict", str(MANIFEST))
    assert found.returncode == 0, found.stdout + found.stderr
    (tmp_path / "wrong.yaml").write_text(MANIFEST.read_text().replace("image: tradewind", "imagee: tradewind"))
    assert run(validate, "--strict", str(tmp_path / "wrong.yaml")).returncode != 0


# --- scripts ---


@pytest.mark.parametrize("script", sorted(INFRA.rglob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    found = run(tool("shellcheck"), str(script))
    assert (found.returncode, found.stdout) == (0, "")
