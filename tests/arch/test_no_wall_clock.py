"""Messages between machines have no instants: neither end reads a wall clock, which may be wrong by an hour."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [*sorted((ROOT / "orchestrator" / "nodes").glob("*.py")), ROOT / "orchestrator" / "engine" / "node_runtime.py"]
CLOCKS = {"time", "time_ns", "now", "utcnow", "now_ms", "modified_ms", "localtime", "gmtime", "ctime"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_wall_clock_is_read(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = [
        f"{node.attr} in line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS
    ]
    assert not found


def test_the_check_would_find_one() -> None:
    tree = ast.parse("import time\ntime.time()")
    assert [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)] == ["time"]
