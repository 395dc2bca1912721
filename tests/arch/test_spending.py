"""One place rents machines, and it asks the spending limits first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ENGINE = Path(__file__).parents[2] / "orchestrator"
SIMULATED = ENGINE / "sim"  # its provider hands launches on to the fake cloud


def calls_of(name: str, tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if (isinstance(called, ast.Attribute) and called.attr == name) or (
                isinstance(called, ast.Name) and called.id == name
            ):
                yield node


def test_nothing_rents_but_provision_after_it_asked_the_limits() -> None:
    found = []
    for path in ENGINE.rglob("*.py"):
        if not path.is_relative_to(SIMULATED):
            named = [
                node
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute) and node.attr in ("launch", "launch_any")
            ]
            found += [(path.relative_to(ENGINE).as_posix(), node.lineno) for node in named]
    ((where, first), (also, last)) = found
    assert where == also == "engine/migration/bring_up.py"
    steps = {
        node.name: node for node in ast.parse((ENGINE / where).read_text()).body if isinstance(node, ast.FunctionDef)
    }
    (counted,) = calls_of("_counted", steps["provision"])
    assert steps["provision"].lineno < counted.lineno < first < last <= (steps["provision"].end_lineno or 0)
    assert [*calls_of("check_limits", steps["_counted"])]
