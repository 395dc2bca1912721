"""Every claim of the documents has a script that measures it, and all scripts are asked in the same way."""

from __future__ import annotations

import json
import multiprocessing
import runpy
import sys
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from benchmarks._claims import Claim, show

SCRIPTS = sorted(path for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py") if path.name[0] != "_")


HEAVY = ["torch._dynamo", "pyarrow.parquet", "tests.e2e.three_clouds", "tests.rig", __name__]
"""Each benchmark is a process of its own, forked from one that has imported these, which takes seconds."""


def asked_for_help(script: Path, into: Path) -> None:
    """Runs a script as a user would, in this process."""
    sys.argv = [str(script), "--help"]
    with into.open("w", encoding="utf-8") as sys.stdout:
        runpy.run_path(str(script), run_name="__main__")


@pytest.fixture(scope="module")
def prepared() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(HEAVY)
    return context


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_can_be_quick_and_can_speak_json(script: Path, prepared: ForkServerContext, tmp_path: Path) -> None:
    process = prepared.Process(target=asked_for_help, args=(script, tmp_path / "printed"))
    process.start()
    process.join()
    printed = (tmp_path / "printed").read_text(encoding="utf-8")
    assert process.exitcode == 0
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
