"""Who writes what the engine acts on: only the control plane that leads the store."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ENGINE = Path(__file__).parents[2] / "orchestrator" / "engine"


def calls(name: str, owner: str | None = None) -> Iterator[tuple[str, ast.Call]]:
    """Every call in the engine of a function or, with `owner`, of that object's method."""
    for path in sorted(ENGINE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            method = isinstance(called, ast.Attribute) and called.attr == name
            if (owner is None and isinstance(called, ast.Name) and called.id == name) or (
                owner is not None and method and ast.unparse(called.value).endswith(owner)  # type: ignore[attr-defined]
            ):
                yield f"{path.name}:{node.lineno}", node


def test_the_engine_writes_to_the_store_as_its_leader_only() -> None:
    writes = [*calls("write", owner="store")]
    assert len(writes) >= 5
    assert [where for where, call in writes if not call.args] == []


def test_a_poll_for_the_engine_is_given_its_leadership() -> None:
    polls = [*calls("collect"), *calls("record")]
    assert len(polls) >= 4  # engine.machines.collect.collect_from cannot be called without it
    assert [where for where, call in polls if len(call.args) < 2] == []
