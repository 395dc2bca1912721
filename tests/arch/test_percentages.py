"""Users see percentages in one style: 90%, as Python formats them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import orchestrator
import providers
import trainers

APART = re.compile(r"\d %(?!\w)")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module without its docstrings, with 0 for what is formatted."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    lone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | lone:
            yield node.lineno, node.value


def test_no_text_puts_a_space_before_a_percent_sign() -> None:
    found = [
        f"{path}:{line}: {text}"
        for package in (orchestrator, providers, trainers)
        for path in sorted(Path(package.__path__[0]).rglob("*.py"))
        for line, text in texts(ast.parse(path.read_text()))
        if APART.search(text)
    ]
    assert not found, "\n".join(found)


def test_a_percentage_that_is_formatted_is_found() -> None:
    assert [line for line, text in texts(ast.parse('x = f"{y:.0f} % of {z}"')) if APART.search(text)] == [1]
    assert not [text for _, text in texts(ast.parse('x = "5% of"\n"""5 % of"""')) if APART.search(text)]
