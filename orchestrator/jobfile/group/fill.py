"""Replaces `${matrix.NAME}` in a job's fields, and finds placeholders that are not valid."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from orchestrator.errors import did_you_mean, nearest
from orchestrator.jobfile.group.matrix import Combination, Matrix, variable
from orchestrator.jobfile.source.placeholders import meant, texts_of
from orchestrator.jobfile.source.source_map import Finding, Loc, dotted
from orchestrator.jobfile.units import quoted

_VALUE = re.compile(r"\$\{\s*matrix\.([^{}\s]*)\s*\}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def name_of(written: str, combination: Combination) -> tuple[str, str]:
    """(the name of the job, the same without the values that were added to it).

    `train` with lr 0.1 and seed 1 -> `train-lr0.1-seed1`, `train`. `train-${matrix.lr}` -> `train-0.1-seed1`,
    `train-0.1`. Characters that are not allowed in names become `_`.
    """
    base = _VALUE.sub(lambda match: _in_names(combination[match[1]][1]), written)
    used = set(_VALUE.findall(written))
    rest = [key + _in_names(text) for key, (_, text) in combination.items() if key not in used]
    return "-".join([base, *rest]), base


def misused(tree: Mapping[str, object], matrix: Matrix) -> tuple[list[Finding], set[Loc]]:
    """(findings about placeholders that are malformed or not in the matrix; their places, and the places of
    placeholders whose values are unknown because the matrix is wrong)."""
    found: dict[Finding, None] = {}
    lost: set[Loc] = set()
    known = dict.fromkeys(matrix.combinations[0])
    for loc, text, is_key in texts_of(tree, ()):
        at: Literal["key", "value"] = "key" if is_key else "value"
        for message, hint, name in _misuses(text, known, is_key=is_key):
            lost.add(loc)
            if not name or (matrix.unread is not None and name not in matrix.unread):
                found[Finding(loc, message, hint, at)] = None
    return list(found), lost


def _misuses(text: str, known: Collection[str], *, is_key: bool) -> Iterator[tuple[str, str, str]]:
    """The message, the remedy and the missing name for each wrong placeholder in a text (name "": malformed)."""
    for match in meant(text):
        value, shown = _VALUE.match(text, match.start()), quoted(match[0].rstrip())
        if is_key:
            yield f"{shown} is in the name of a field", "use it only in values", ""
        elif value is None:
            name = match["name"]
            if name not in known:
                name = nearest(name, known) or name or next(iter(known), "NAME")
            yield f"{shown} is not a valid placeholder", f"write ${{matrix.{name}}}", ""
        elif value[1] not in known:
            has = f"the matrix has {', '.join(known)}" if known else "give the job a matrix with it"
            hint = did_you_mean(value[1], known) or has
            yield f"the matrix of this job has no {value[1]!r}", hint, value[1]


def names_in(tree: object, loc: Loc) -> frozenset[str]:
    """The names of the matrix values in the text at `loc`."""
    value = _at(tree, loc)
    return frozenset(_VALUE.findall(value)) if isinstance(value, str) else frozenset()


def has_values(tree: object, loc: Loc) -> bool:
    """Whether a text at or below `loc` uses matrix values."""
    return any(any(meant(text)) for _, text, _ in texts_of(_at(tree, loc), loc))


def _at(tree: object, loc: Loc) -> object:
    """The value at `loc`. A single value counts as a list of one."""
    for part in loc:
        if isinstance(tree, dict):
            tree = tree.get(part)
        elif isinstance(tree, list) and isinstance(part, int) and part < len(tree):
            tree = tree[part]
    return tree


def filled(
    tree: Mapping[str, object], combination: Combination, texts: dict[Loc, str], lost: Collection[Loc]
) -> dict[str, object]:
    """The job's fields with each `${matrix.NAME}` replaced by its value, and MATRIX_NAME in its environment. Fields at
    the places `lost` are left empty.

    A field that is only `${matrix.NAME}` gets the value itself, so numbers stay numbers; `texts` gets its text.
    `name_of` sets the job's name.
    """
    result = {key: _filled(value, combination, (key,), texts, lost) for key, value in tree.items()}
    if combination and isinstance(train := result.get("train"), dict):
        given = train.get("env")
        own = {variable(key): text for key, (_, text) in combination.items()}
        if given is None or isinstance(given, dict):
            result["train"] = {**train, "env": {**own, **(given or {})}}
    return result


def _filled(value: object, values: Combination, loc: Loc, texts: dict[Loc, str], lost: Collection[Loc]) -> object:
    if loc in lost:
        return None
    if isinstance(value, dict):
        return {key: _filled(each, values, (*loc, key), texts, lost) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values, (*loc, index), texts, lost) for index, each in enumerate(value)]
    if not isinstance(value, str) or loc == ("name",):
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
