"""The example of a provider in a package of its own: built, installed and used, as its readers would; no network."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from providers.clock import VirtualClock

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "harbour"
MOST_LINES = 200
TRADEWIND = (sys.executable, "-c", "from orchestrator.cli import main; main()")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which pip has installed the package from its source."""
    folder = tmp_path_factory.mktemp("harbour")
    into = ["--no-index", "--no-deps", "--find-links", str(folder), "--target", str(folder / "site")]
    for command in (
        ["hatchling", "build", "-t", "wheel", "-d", str(folder)],
        ["pip", "install", "--quiet", *into, "tradewind-harbour"],
    ):
        python = [sys.executable, "-m", *command]
        done = subprocess.run(python, cwd=EXAMPLE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(folder / "site"), str(ROOT)))}


@pytest.fixture(scope="module")
def cloud() -> ModuleType:
    """The example's own tests, which hold a server that speaks its protocol."""
    spec = importlib.util.spec_from_file_location("harbour_tests", EXAMPLE / "tests" / "test_harbour.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_whole_package_is_short() -> None:
    sources = [path for path in EXAMPLE.rglob("*") if path.suffix in (".py", ".toml") and "tests" not in path.parts]
    assert sum(len(path.read_text().splitlines()) for path in sources) <= MOST_LINES


def test_installed_from_its_source_it_passes_the_conformance_kit(installed: dict[str, str], tmp_path: Path) -> None:
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(EXAMPLE),
    ]
    done = subprocess.run(
        [*tests, str(EXAMPLE / "tests")], cwd=tmp_path, env=installed, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


def test_once_installed_and_enabled_its_offers_are_listed(
    installed: dict[str, str], cloud: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "tradewind.toml").write_text('state_dir = "state"\n[providers]\nenabled = ["harbour"]\n')
    now_ms = time.time_ns() // 1_000_000
    with cloud.serving(cloud.Harbour(VirtualClock(start_ms=now_ms - 60_000))) as url:
        done = subprocess.run(
            [*TRADEWIND, "offers", "--output", "json"],
            cwd=tmp_path,
            env=installed | {"HARBOUR_URL": url, "HARBOUR_API_KEY": "right"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = {row["id"]: row for row in json.loads(done.stdout)["offers"] if row["provider"] == "harbour"}
    assert set(found) == {cloud.OFFER, cloud.OFFER.replace("on_demand", "spot")}
    assert found[cloud.OFFER]["gpu"] == "A100-80GB"
