"""The wheel holds the three packages and nothing else. Built with the installed backend: no network, no isolation."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"orchestrator", "providers", "trainers"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_is_the_three_packages_and_its_own_description(files: dict[str, bytes]) -> None:
    tops = {name.split("/")[0] for name in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert len(tops) == len(PACKAGES) + 1


def test_the_wheel_holds_every_source_file_and_only_those(files: dict[str, bytes]) -> None:
    sources = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in files if name.split("/")[0] in PACKAGES} == sources


def test_the_wheel_is_typed_and_brings_its_schema_revisions(files: dict[str, bytes]) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= files.keys()
    assert any(name.startswith("orchestrator/store/revisions/r") for name in files)


def test_the_wheel_carries_the_licence_and_the_command(files: dict[str, bytes]) -> None:
    (entry_points,) = (text for name, text in files.items() if name.endswith(".dist-info/entry_points.txt"))
    assert b"tradewind = orchestrator.cli:main" in entry_points
    assert any(name.endswith("/licenses/LICENSE") for name in files)
