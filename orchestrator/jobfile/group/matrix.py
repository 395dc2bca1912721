"""Matrices: one job for each combination of values, which reach it as `${matrix.NAME}` and as MATRIX_NAME."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from math import prod

from orchestrator.errors import did_you_mean
from orchestrator.jobfile.source.source_map import Finding, Loc, dotted

MOST_JOBS = 1000
"""Of one group."""

_VALUE = re.compile(r"\$\{\s*matrix\.([^}\s]*)\s*\}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")

Combination = Mapping[str, tuple[object, str]]
"""By name: a value, and its text as written."""


def combinations(matrix: object, loc: Loc, texts: Mapping[Loc, str]) -> tuple[list[Combination], list[Finding]]:
    """(all combinations, the last name varying fastest; what is wrong with the matrix, whose place is `loc`)."""
    if not isinstance(matrix, dict) or not matrix:
        wrong = "is empty" if matrix in ({}, [], None, "") else "must be a mapping of lists"
        return [], [Finding(loc, wrong, "write it like {lr: [0.1, 0.01]}, or delete the field")]
    found: list[Finding] = []
    columns: list[list[tuple[object, str]]] = []
    variables: dict[str, str] = {}
    for key, values in matrix.items():
        at = (*loc, key)
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            found.append(Finding(at, "is not a valid name", "use letters, digits and _", "key"))
        elif (other := variables.setdefault(_variable(key), key)) != key:
            wrong = f"would be {_variable(key)} in the job's environment, as {other} is"
            found.append(Finding(at, wrong, "rename one of the two: capital letters make no difference", "key"))
        elif not isinstance(values, list):
            found.append(Finding(at, "must be a list of values", f"write [{texts.get(at, values)}]"))
        elif not values:
            found.append(Finding(at, "has no values: no job would be made", "name at least one, or delete it"))
        else:
            column: list[tuple[object, str]] = []
            for index, value in enumerate(values):
                if not isinstance(value, str | int | float):  # a bool is an int
                    found.append(Finding((*at, index), "must be a number, text or true/false", "write one value"))
                else:
                    column.append((value, texts.get((*at, index), _text(value))))
            columns.append(column)
    if found:
        return [], found
    if (count := prod(map(len, columns))) > MOST_JOBS:
        return [], [Finding(loc, f"makes {count:,} jobs; at most {MOST_JOBS:,} are allowed", "use fewer values")]
    return [dict(zip(matrix, values, strict=True)) for values in itertools.product(*columns)], []


def name_of(written: str, combination: Combination) -> tuple[str, str]:
    """(the name of the job, the same without the values that were not written into it).

    `train` with lr 0.1 and seed 1 -> `train-lr0.1-seed1`, `train`. `train-${matrix.lr}` -> `train-0.1-seed1`,
    `train-0.1`. Characters that names do not have become `_`.
    """
    base = _VALUE.sub(lambda match: _in_names(combination[match[1]][1]), written)
    used = set(_VALUE.findall(written))
    rest = [key + _in_names(text) for key, (_, text) in combination.items() if key not in used]
    return "-".join([base, *rest]), base


def filled(
    tree: Mapping[str, object], combination: Combination, texts: dict[Loc, str]
) -> tuple[dict[str, object], list[Finding]]:
    """The job's fields with each `${matrix.NAME}` replaced by its value, and MATRIX_NAME in its environment.

    A field that is only `${matrix.NAME}` gets the value itself, so numbers stay numbers; `texts` gets its text. The
    job's name is left to `name_of`.
    """
    found: list[Finding] = []
    result = {key: _filled(value, combination, (key,), texts, found) for key, value in tree.items()}
    if combination and isinstance(train := result.get("train"), dict):
        given = train.get("env")
        own = {_variable(key): text for key, (_, text) in combination.items()}
        if given is None or isinstance(given, dict):
            result["train"] = {**train, "env": {**own, **(given or {})}}
    return result, found


def _filled(value: object, values: Combination, loc: Loc, texts: dict[Loc, str], found: list[Finding]) -> object:
    if isinstance(value, dict):
        return {key: _filled(each, values, (*loc, key), texts, found) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values, (*loc, index), texts, found) for index, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    unknown = [name for name in _VALUE.findall(value) if name not in values]
    if unknown:
        hint = did_you_mean(unknown[0], values) or (
            f"the matrix has {', '.join(values)}" if values else "give the job a matrix with it"
        )
        found.append(Finding(loc, f"the matrix of this job has no {unknown[0]!r}", hint))
        return value
    if loc == ("name",):
        return value
    if loc[0] == "after":
        return _VALUE.sub(lambda match: _in_names(values[match[1]][1]), value)
    if whole := _VALUE.fullmatch(value):
        chosen, text = values[whole[1]]
        texts[loc] = text
        always_text = loc == ("file",) or dotted(loc).startswith("train.env.")
        return text if always_text else chosen
    if _VALUE.search(value):
        texts.pop(loc, None)
    return _VALUE.sub(lambda match: values[match[1]][1], value)


def _in_names(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)


def _variable(key: str) -> str:
    return f"MATRIX_{key.upper()}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
