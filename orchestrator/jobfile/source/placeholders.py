"""Finds placeholders of a group's matrix, `${matrix.NAME}`, well-formed or not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from orchestrator.jobfile.source.source_map import Finding, Loc
from orchestrator.jobfile.units import quoted

_MEANT = re.compile(
    r"\$\{(?P<two>\{)?\s*(?P<matrix>[A-Za-z_]+)\s*\.\s*(?P<name>[A-Za-z0-9_]*)"
    r"(?:[^{}$]*\}(?(two)\}?)|[^\s{}$]*)"  # until its end; without one, until a space
)


def meant(text: str) -> Iterator[re.Match[str]]:
    """The placeholders in a text as written: well-formed, malformed or misspelt. `name` is the part of the value's name
    that is valid. Shell variables are not included, because their names have no dot."""
    return (match for match in _MEANT.finditer(text) if _is_matrix(match["matrix"].lower()))


def _is_matrix(word: str) -> bool:
    """Whether a word is `matrix`, or differs by one missing, added, wrong or swapped letter. The first letter must be
    right: `dmatrix` is something else."""
    if word == "matrix":
        return True
    if word[0] != "m":
        return False
    shorter, whole = _without_one(word), _without_one("matrix")
    return word in whole or "matrix" in shorter or bool(len(word) == len("matrix") and shorter & whole)


def _without_one(word: str) -> set[str]:
    return {word[:at] + word[at + 1 :] for at in range(len(word))}


def texts_of(value: object, loc: Loc) -> Iterator[tuple[Loc, str, bool]]:
    """(place, text, whether it is a key) of every text below `value`."""
    if isinstance(value, str):
        yield loc, value, False
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from texts_of(each, (*loc, index))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield (*loc, key), key, True
            yield from texts_of(each, (*loc, key))


def without_a_group(tree: object) -> Iterator[Finding]:
    """A finding for each placeholder in a job that is not part of a group."""
    hint = "submit the group file that gives this job a matrix, or write the value"
    for loc, text, is_key in texts_of(tree, ()):
        for shown in dict.fromkeys(quoted(match[0].rstrip()) for match in meant(text)):
            yield Finding(loc, f"{shown} stands for a value of a group's matrix", hint, "key" if is_key else "value")
