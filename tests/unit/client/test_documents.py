"""What docs/sdk.md shows runs, and what documents call exists."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import orchestrator
from orchestrator import Client
from scripts.page_sdk import SCRIPT

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def test_the_script_of_the_page_runs_without_an_account_and_without_ray(tmp_path: Path) -> None:
    for _ in range(2):  # also with the same folder again
        done = subprocess.run([sys.executable, ROOT / SCRIPT, tmp_path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    said = [line.split()[0] for line in done.stdout.splitlines()]
    parts = ["plan", "cheapest", "fastest", "submitted", "prices", "offer", "event", "report", "error", "fields"]
    assert list(dict.fromkeys(said)) == parts
    assert "event     job.submitted by user:ann" in done.stdout
    assert "fields    deadline, budget" in done.stdout
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_every_call_of_a_client_that_a_document_shows_exists(tmp_path: Path) -> None:
    client = Client(state_dir=tmp_path / "state")
    called = {
        (path.name, *name)
        for path in DOCUMENTS
        if path.name != "CHANGELOG.md"
        for name in re.findall(r"\bclient\.([a-z_]+)\.([a-z_]+)", path.read_text())
    }
    assert len(called) > 15
    wrong = [each for each in called if not callable(getattr(getattr(client, each[1], None), each[2], None))]
    assert wrong == []
    assert list(tmp_path.iterdir()) == []


def test_the_page_names_only_what_the_package_exports() -> None:
    text = (ROOT / "docs/sdk.md").read_text()
    imported = re.findall(r"from orchestrator import (.+)", text)
    names = {*re.findall(r"\borchestrator\.([A-Za-z_]+)", text), *", ".join(imported).split(", ")}
    assert {"Client", "Caller", "JobSpec", "pages", "to_json"} <= names
    assert names <= {*orchestrator.__all__}


def test_every_public_method_of_the_client_is_documented(tmp_path: Path) -> None:
    client = Client(state_dir=tmp_path / "state")
    namespaces = [name for name, value in vars(Client).items() if isinstance(value, cached_property)]
    assert len(namespaces) == 18
    for name in namespaces:
        kind = type(getattr(client, name))
        public = [method for method in vars(kind) if not method.startswith("_")]
        assert public
        assert all(getattr(kind, method).__doc__ for method in public), name
