"""`tradewind checkpoints`: what a job has saved, for people."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import Result

from tests.unit.services.recorded_history import Past
from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName

Run = Callable[..., Result]
LATEST, BEFORE, ZOMBIE = "3-1000-1", "3-800-1", "1-390-1"


def shown(tradewind: Run, *arguments: str) -> Any:
    done = tradewind("checkpoints", *arguments, "--output", "json")
    return json.loads(done.stdout)


@pytest.fixture
def root(state: Path) -> str:
    return str(state / "checkpoints")


def damage(root: str, job: str, name: str) -> None:
    """The chunk that only this checkpoint has."""
    piece = store.read_manifest(root, job, ManifestName.parse(name)).tensors[1].pieces[0]
    (Path(root) / job / "chunks" / piece.chunk).write_bytes(b"3-8_0")


def test_the_list_says_what_counts_what_is_new_and_where_a_run_would_start(tradewind: Run) -> None:
    newest, before, zombie = shown(tradewind, "ls", "gpt")["checkpoints"]
    assert [each["name"] for each in (newest, before, zombie)] == [LATEST, BEFORE, ZOMBIE]
    assert (newest["counts"], before["counts"], zombie["counts"]) == (True, True, False)
    assert (before["size_bytes"], before["new_bytes"]) == (13, 13)
    assert (newest["size_bytes"], newest["new_bytes"]) == (14, 6), "the rest is shared with the one before"
    assert (newest["loss"], newest["saved_at_ms"]) == (0.25, 1_750_001_000_000)
    text = tradewind("checkpoints", "ls", "gpt").stdout
    assert f"a run starts from {LATEST}" in text
    assert "not used" in text
    assert "no checkpoints" in tradewind("checkpoints", "ls", "lstm").stdout
    assert tradewind("checkpoints", "ls", "nobody").exit_code == 4


def test_verify_reads_every_byte_and_names_what_is_damaged(tradewind: Run, root: str, past: Past) -> None:
    assert tradewind("checkpoints", "verify", "gpt").exit_code == 0
    damage(root, past.gpt, BEFORE)
    assert "complete" in tradewind("checkpoints", "ls", "gpt").stdout, "the list does not read it"
    done = tradewind("checkpoints", "verify", "gpt")
    assert done.exit_code == 8
    assert "1 of 3 checkpoints are damaged" in done.stderr
    problems = {each["name"]: each["problem"] for each in shown(tradewind, "verify", "gpt")["checkpoints"]}
    assert "model.1" in problems[BEFORE]
    assert "truncated or altered" in problems[BEFORE]
    assert problems[LATEST] == problems[ZOMBIE] == ""


def test_prune_keeps_what_is_asked_and_what_it_needs(tradewind: Run, root: str, past: Past) -> None:
    asked = tradewind("checkpoints", "prune", "gpt", "--keep", "1")
    assert (asked.exit_code, asked.stdout) == (2, "")
    assert "add --yes" in asked.stderr
    done = shown(tradewind, "prune", "gpt", "--keep", "1", "--yes")
    assert done["deleted"] == [BEFORE, ZOMBIE]
    assert done["kept"] == [LATEST]
    assert done["freed_bytes"] == len("3-800" + "the same" + "1-390")
    assert [str(name) for name in store.manifests(root, past.gpt)] == [LATEST]
    store.verify(root, past.gpt, ManifestName.parse(LATEST))
    assert "nothing to delete" in tradewind("checkpoints", "prune", "gpt", "--keep", "1", "--yes").stdout


def test_a_running_job_prunes_itself(tradewind: Run, root: str, past: Past) -> None:
    refused = tradewind("checkpoints", "prune", "conv", "--keep", "1", "--yes")
    assert refused.exit_code == 2
    assert "is running" in refused.stderr
    assert "tradewind pause conv" in refused.stderr


def test_an_export_is_a_plain_file(tradewind: Run, root: str, past: Past, tmp_path: Path) -> None:
    done = shown(tradewind, "export", "gpt", "model.pt")
    assert (done["name"], done["step"], done["format"], done["skipped"]) == (LATEST, 1000, "torch", [])
    found = torch.load(tmp_path / "model.pt")
    assert bytes(found["model"]["weight"]) == b"the same"
    assert (found["step"], found["epoch"], found["model"]["rows"]) == (1000, 2, [1, 2])
    again = tradewind("checkpoints", "export", "gpt", "model.pt")
    assert again.exit_code == 2
    assert "--force" in again.stderr
    damage(root, past.gpt, LATEST)
    older = shown(tradewind, "export", "gpt", "model.pt", "--force")
    assert older["name"] == BEFORE
    assert "3-1000-1: model.1" in older["skipped"][0]
    refused = tradewind("checkpoints", "export", "gpt", "other.pt", "--checkpoint", LATEST)
    assert (refused.exit_code, (tmp_path / "other.pt").exists()) == (5, False)
    assert tradewind("checkpoints", "export", "gpt", "other.pt", "--checkpoint", "3-7-1").exit_code == 4


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_an_export_to_where_no_file_can_be_says_so_and_changes_nothing(
    tradewind: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = tradewind("checkpoints", "export", "gpt", f"nowhere/{name}")
    assert (refused.exit_code, "nowhere does not exist" in refused.stderr) == (2, True)
    os.mkfifo(tmp_path / name)
    refused = tradewind("checkpoints", "export", "gpt", name, "--force")
    assert (refused.exit_code, "is not a file" in refused.stderr) == (2, True)
    assert (tmp_path / name).is_fifo()
    monkeypatch.setattr(Path, "is_dir", lambda _: True)  # it is removed while the checkpoint is read
    failed = tradewind("checkpoints", "export", "gpt", f"nowhere/{name}")
    assert (failed.exit_code, "cannot be written" in failed.stderr) == (5, True)


def test_an_export_to_safetensors_has_the_tensors_of_the_model(tradewind: Run, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="pip install 'tradewind[export]'")
    done = shown(tradewind, "export", "gpt", "model.safetensors")
    assert done["format"] == "safetensors"
    found = safetensors.load_file(tmp_path / "model.safetensors")
    assert {name: bytes(tensor) for name, tensor in found.items()} == {"weight": b"the same", "tied": b"the same"}
