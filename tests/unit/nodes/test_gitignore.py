"""The patterns of .tradewindignore mean what they mean to git: the expected paths are what git 2.39 ignores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.nodes.packing import IGNORE_FILE, contents

TREE = (
    *("main.py", "x.py", "[x].py", "app/.env", "app/app.env", "app/main.py", "models/keep.py", "models/a.ckpt"),
    *("models/deep/b.ckpt", "data/big.bin", "data/keep/x.csv", "data/keep.py", "logs/run.log", "a/b/c/d.txt"),
    *(" lead.txt", "#hash", "!bang", "w h y"),
)
PYTHON = ("[x].py", "app/main.py", "data/keep.py", "main.py", "models/keep.py", "x.py")


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        # what brings a folder back does not bring back the files in it that another pattern names
        ("*.ckpt\n!models", ("models/a.ckpt", "models/deep/b.ckpt")),
        ("*\n!app\n!*.py", tuple(path for path in TREE if path not in ("app/main.py", "main.py", "x.py", "[x].py"))),
        ("data/**\n!data/keep.py", ("data/big.bin", "data/keep/x.csv")),
        ("data/**\n!data/keep/\n!data/keep/x.csv", ("data/big.bin", "data/keep.py")),
        ("data/\n!data/keep.py", ("data/big.bin", "data/keep.py", "data/keep/x.csv")),
        ("*.env\n\n# x\n!app.env", ("app/.env",)),
        ("\ufeff*.py", PYTHON),  # as Windows writes it
        ("*.py\r\n", PYTHON),
        ("app.env   \n", ("app/app.env",)),
        ("\\#hash\n\\!bang", ("!bang", "#hash")),
        ("w\\ h y", ("w h y",)),
        ("[[]x].py", ("[x].py",)),
        ("[[:alpha:]].py", ("x.py",)),
        ("[!y].p?", ("x.py",)),
        ("/*.py", ("[x].py", "main.py", "x.py")),
        ("**/d.txt", ("a/b/c/d.txt",)),
        ("a/**/d.txt", ("a/b/c/d.txt",)),
        ("a/*/d.txt", ()),
        ("/c", ()),
        ("logs/*.log", ("logs/run.log",)),
        ("*/\n!app/", tuple(path for path in TREE if "/" in path and not path.startswith("app/"))),
        *((nothing, ()) for nothing in ("!", "/", "[", "[a-", "x.py\\", "", "#main.py")),
    ],
)
def test_the_same_is_ignored_as_by_git(tmp_path: Path, text: str, ignored: tuple[str, ...]) -> None:
    for path in TREE:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / IGNORE_FILE).write_bytes(text.encode())
    assert set(TREE) - set(contents(tmp_path).files) == set(ignored)


@pytest.mark.timeout(20)
def test_no_pattern_takes_long(tmp_path: Path) -> None:
    (tmp_path / ("a" * 200)).write_text("")
    (tmp_path / IGNORE_FILE).write_text(f"{'*a' * 20}*b\n{'**/' * 20}x\n")
    assert len(contents(tmp_path).files) == 2


@pytest.mark.timeout(20)
def test_a_pipe_instead_of_the_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / IGNORE_FILE)
    with pytest.raises(UsageError, match="not a regular file"):
        contents(tmp_path)
