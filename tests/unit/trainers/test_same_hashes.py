"""A trainer's process hashes texts like any other of its job, and is otherwise as it was started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
TELLS = """
import json, os, sys
from trainers.process import same_hashes
same_hashes.require()
results = {"hash": hash("text"), "argv": sys.argv, "path": sys.path, "flags": list(sys.flags), "options": sys._xoptions}
results |= {"warnings": sys.warnoptions, "name": __name__, "python": [sys.executable, sys.prefix], "at": os.getcwd()}
print(json.dumps(results | {"environment": dict(os.environ)}))
"""
CALLS = "print('once', flush=True); from trainers import runner; runner.main(['nothing.json'])"


def python(*arguments: str, at: Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    present = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=at,
        env=present | {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True,
        text=True,
        check=check,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tells.py").write_text(TELLS)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "seed"),
    [
        (["-c", TELLS, "a b", "", "-x", "'\"$"], {}),
        (["-X", "utf8", "-W", "error::UserWarning", "-O", "-u", "tells.py", "--steps", "3"], {}),
        (["-m", "tells", "\u00fc"], {"PYTHONHASHSEED": "123"}),
        (["-m", "cProfile", "-o", "profile", "-m", "tells", "spec.json"], {}),  # as a debugger or coverage starts it
    ],
    ids=["command", "options", "module", "profiled"],
)
def test_a_process_that_begins_again_keeps_all_but_its_hashes(folder: Path, arguments: list[str], seed: dict[str, str]):
    begun_again = json.loads(python(*arguments, at=folder, **seed).stdout)
    begun_so = json.loads(python(*arguments, at=folder, PYTHONHASHSEED="0").stdout)
    assert begun_again == begun_so


@pytest.mark.parametrize("option", ["-E", "-R"])
def test_a_python_that_cannot_have_those_hashes_is_an_error_and_no_endless_loop(folder: Path, option: str):
    found = f"import sys; sys.path.append({str(REPOSITORY)!r})\n{TELLS}"
    outcome = python(option, "-c", found, at=folder, check=False)
    assert outcome.returncode == 1
    assert "start Python without -E, -I and -R" in outcome.stderr


def test_a_program_that_calls_the_runner_is_not_begun_again(folder: Path):
    outcome = python("-c", CALLS, at=folder, check=False)
    assert outcome.stdout == "once\n"
    assert "nothing.json" in outcome.stderr
