"""No test replaces a function of the module `time` for the whole process: threads of other tests sleep by it, too."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def replaced(tree: ast.AST) -> list[int]:
    """The lines of `setattr("time.sleep", ...)` and `setattr(time, "sleep", ...)`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    return [
        call.lineno
        for call in calls
        if getattr(call.func, "attr", getattr(call.func, "id", "")) in ("setattr", "patch")
        and (
            (isinstance(first := call.args[0], ast.Name) and first.id == "time" and _names_sleep(call))
            or (isinstance(first, ast.Constant) and first.value == "time.sleep")
        )
    ]


def _names_sleep(call: ast.Call) -> bool:
    return any(isinstance(arg, ast.Constant) and arg.value == "sleep" for arg in call.args[1:2])


def test_no_test_replaces_sleep_everywhere() -> None:
    found = [f"{path}:{line}" for path in sorted(TESTS.rglob("*.py")) for line in replaced(ast.parse(path.read_text()))]
    assert not found, "replace `time` in the module under test alone"


def test_the_check_would_find_them() -> None:
    for line in (
        'patch.setattr("time.sleep", wake)',
        'patch.setattr(time, "sleep", wake)',
        'setattr(time, "sleep", w)',
    ):
        assert replaced(ast.parse(line)) == [1]
    assert not replaced(ast.parse('patch.setattr(sqlite, "time", clock)'))
