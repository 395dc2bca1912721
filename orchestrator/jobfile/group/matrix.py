"""Matrices: one job for each combination of values. It gets the values as `${matrix.NAME}` and as MATRIX_NAME."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from orchestrator.jobfile.source.placeholders import meant
from orchestrator.jobfile.source.source_map import Finding, Loc
from orchestrator.jobfile.units import quoted

MOST_JOBS = 1000
"""Of one group."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

Combination = Mapping[str, tuple[object, str]]
"""By name: a value, and its text as written."""


@dataclass(slots=True)
class Matrix:
    """The combinations of a matrix, the last name varying fastest, and the mistakes in it.

    `whole`: no combination is missing. `unread`: names without usable values; None if the names are not known.
    """

    combinations: list[Combination] = field(default_factory=lambda: [{}])
    findings: list[Finding] = field(default_factory=list)
    whole: bool = True
    unread: frozenset[str] | None = frozenset()


def read_matrix(matrix: object, loc: Loc, texts: Mapping[Loc, str]) -> Matrix:
    """Read the matrix at `loc`. Its valid part is used, so that mistakes in other places are found too."""
    if not isinstance(matrix, dict) or not matrix:
        wrong = "is empty" if matrix in ({}, [], None, "") else "must be a mapping of lists"
        hint = "write it like {lr: [0.1, 0.01]}, or delete the field"
        return Matrix(findings=[Finding(loc, wrong, hint)], whole=False, unread=None)
    found: list[Finding] = []
    columns: dict[str, list[tuple[object, str]]] = {}
    unread: set[str] = set()
    variables: dict[str, str] = {}
    for key, values in matrix.items():
        at = (*loc, key)
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            found.append(Finding(at, "is not a valid name", "use letters, digits and _", "key"))
        elif (other := variables.setdefault(variable(key), key)) != key:
            wrong = f"would set {variable(key)} in the job's environment, as {other} does"
            found.append(Finding(at, wrong, "rename one of the two; upper and lower case are the same here", "key"))
        elif not isinstance(values, list):
            found.append(Finding(at, "must be a list of values", f"write [{texts.get(at, _example(values))}]"))
        elif not values:
            found.append(
                Finding(at, "has no values, so there would be no jobs", "give at least one value, or delete the name")
            )
        elif column := _column(values, at, texts, found):
            columns[key] = column
        unread |= {str(key)} - columns.keys()
    whole = not found
    if (count := prod(map(len, columns.values()))) > MOST_JOBS:
        found.append(Finding(loc, f"makes {count:,} jobs; at most {MOST_JOBS:,} are allowed", "use fewer values"))
        columns, whole = {key: column[:1] for key, column in columns.items()}, False
    products = itertools.product(*columns.values())
    return Matrix([dict(zip(columns, each, strict=True)) for each in products], found, whole, frozenset(unread))


def _column(values: list[object], at: Loc, texts: Mapping[Loc, str], found: list[Finding]) -> list[tuple[object, str]]:
    """The valid values, without repetitions."""
    column: dict[str, object] = {}
    numbers: dict[int | float, str] = {}
    for index, value in enumerate(values):
        if not isinstance(value, str | int | float):  # a bool is an int
            found.append(Finding((*at, index), "must be a number, text or true/false", "write one value"))
            continue
        text = texts.get((*at, index), _text(value))
        written = text if isinstance(value, str | bool) else numbers.setdefault(value, text)
        if text in column:
            found.append(Finding((*at, index), f"{quoted(value)} is listed twice", "delete one of the two"))
        elif written != text:
            wrong = f"{quoted(value)} is listed already, as {written:.60}"
            found.append(Finding((*at, index), wrong, "delete one of the two"))
        if any(meant(text)):
            found.append(Finding((*at, index), "a value cannot contain a placeholder", "write the value itself"))
            continue
        column.setdefault(text, value)
    return [(value, text) for text, value in column.items()]


def _example(values: object) -> str:
    return "0.1, 0.01" if values is None or isinstance(values, dict) else str(values)


def variable(key: str) -> str:
    """The environment variable with the value of that name."""
    return f"MATRIX_{key.upper()}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
