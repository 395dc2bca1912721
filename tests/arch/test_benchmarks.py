"""Every claim of the documents has a script that measures it, and all scripts are asked in the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._claims import Claim, show

SCRIPTS = sorted(path for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py") if path.name[0] != "_")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_can_be_quick_and_can_speak_json(script: Path) -> None:
    printed = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True).stdout
    assert "--quick" in printed
    assert "--json" in printed


def test_a_missed_target_is_reported_and_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    claims = [Claim("start", 1.5, "s", 1.0), Claim("size", 3.0, "MB"), Claim("memory", 2.0, "MB", 2.0)]
    assert show("x", claims, as_json=True) == 1
    reported = json.loads(capsys.readouterr().out)
    assert [claim["met"] for claim in reported] == [False, True, True]
    assert reported[0] == {"claim": "start", "value": 1.5, "unit": "s", "target": 1.0, "met": False}
    assert show("x", claims[1:], as_json=False) == 0
    assert "memory" in capsys.readouterr().out


def test_the_base_install_is_closed_under_its_requirements_and_holds_nothing_heavy() -> None:
    from benchmarks.footprint import base_install

    sizes = base_install()
    assert {"tradewind", "typer", "sqlalchemy", "numpy", "rich"} <= sizes.keys()
    assert not {"torch", "ray", "boto3", "pytest", "xxhash"} & sizes.keys()
    assert all(size > 0 for size in sizes.values())
