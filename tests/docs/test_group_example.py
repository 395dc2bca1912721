"""The worked example of docs/groups.md is the file that it names, and prints what the page quotes, but for numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from scripts.gen_docs import ROOT
from tests.docs.test_documents import blocks

PAGE, EXAMPLE = ROOT / "docs" / "groups.md", ROOT / "examples" / "group.yaml"
QUOTED = [text.split("\n", 1) for text in blocks(PAGE, "console")]
FIGURES = (
    (r"local/\w+-\w+ sim\.\w+", "PLACE"),
    (r"\$[\d.]+", "AMOUNT"),
    (r"[\d.]+ (?:s|min|h|d)\b", "TIME"),
    (r"\s+", " "),
)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Runs a command as somebody who has just cloned the repository."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(command: str) -> str:
        done = CliRunner().invoke(app, command.removeprefix("$ tradewind ").split(), prog_name="tradewind")
        assert done.exit_code == 0, done.stderr
        return done.stdout

    return run


def shape(text: str) -> str:
    for pattern, word in FIGURES:
        text = re.sub(pattern, word, text)
    return text.strip()


def test_the_page_shows_the_example_file() -> None:
    assert f"{next(blocks(PAGE, 'yaml'))}" in EXAMPLE.read_text()


@pytest.mark.parametrize(("command", "said"), QUOTED, ids=[command for command, _ in QUOTED])
def test_the_example_prints_what_the_page_quotes(fresh: Callable[[str], str], command: str, said: str) -> None:
    shown = shape(fresh(command))
    for part in re.split(r"^\.\.\.$", said, flags=re.MULTILINE):
        assert shape(part) in shown
