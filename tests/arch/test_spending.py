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
            tree = ast.parse(path.read_text())
            found += [(path.relative_to(ENGINE).as_posix(), call.lineno) for call in calls_of("launch", tree)]
    ((where, launched_at),) = found
    assert where == "engine/migration/bring_up.py"
    tree = ast.parse((ENGINE / where).read_text())
    (provision,) = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "provision")
    (asked,) = calls_of("check_limits", provision)
    assert provision.lineno < asked.lineno < launched_at <= (provision.end_lineno or 0)
