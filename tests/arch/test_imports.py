"""What may be loaded when: `tradewind --help` and the bare packages stay light, and importing creates nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "torch",
    "ray",
    "sqlalchemy",
    "alembic",
    "numpy",
    "pydantic",
    "msgspec",
    "yaml",
    "highspy",
    "boto3",
    "botocore",
    "google.cloud",
}
HEAVY |= {"azure", "pandas", "polars", "asyncio", "multiprocessing"}


def loaded_by(code: str, folder: Path) -> set[str]:
    """The heavy modules that a fresh interpreter has after `code`, which must leave nothing in `folder`."""
    report = f"\nimport sys; sys.stderr.write('|' + ','.join(sorted({HEAVY!r} & set(sys.modules))))"
    done = subprocess.run(
        [sys.executable, "-c", code + report],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", "XDG_CACHE_HOME": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(folder.iterdir()) == [], "importing must create nothing"
    return set(filter(None, done.stderr.rpartition("|")[2].split(",")))


@pytest.mark.parametrize(
    "module", ["orchestrator", "providers", "trainers", "orchestrator.errors", "providers.registry"]
)
def test_a_bare_import_loads_nothing_heavy(module: str, tmp_path: Path) -> None:
    assert loaded_by(f"import {module}", tmp_path) == set()


def asked_for_help(*command: str) -> str:
    return f"""
import sys
sys.argv = ["tradewind", *{command!r}, "--help"]
from orchestrator.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded_by(asked_for_help(), tmp_path) == set()


@pytest.mark.parametrize("command", [("submit",), ("config", "show"), ("daemon", "run")], ids=" ".join)
def test_help_on_a_command_loads_only_what_typer_itself_does(command: tuple[str, ...], tmp_path: Path) -> None:
    assert loaded_by(asked_for_help(*command), tmp_path) <= {"pydantic"}


def test_the_base_install_answers_without_torch_and_ray(tmp_path: Path) -> None:
    """`offers`, `plan`, `queue`, `report` where neither is installed."""
    (tmp_path / "job.yaml").write_text("name: x\ntrain: {entry: job:main, steps: 10}\nresources: {cpu: 1}\n")
    (tmp_path / "job.py").write_text("def main(): pass\n")
    code = """
import sys
sys.modules.update(dict.fromkeys(("torch", "ray", "xxhash")))  # importing them raises ImportError now
from orchestrator.cli import main
for command in (["offers"], ["plan", "job.yaml"], ["queue"], ["report"]):
    sys.argv = ["tradewind", "--state-dir", "state", *command]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (command, end.code)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
