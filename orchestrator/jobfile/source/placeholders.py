"""Finds what is meant as a value of a group's matrix, `${matrix.NAME}`, well-formed or not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from orchestrator.jobfile.source.source_map import Finding, Loc
from orchestrator.jobfile.units import quoted

_MEANT = re.compile(r"\$\{\{?\s*(?P<matrix>[A-Za-z_]+)\s*\.\s*(?P<name>[A-Za-z0-9_]*)\s*\}*")
_AS_GOOD_AS_MATRIX = 0.8
"""How alike a word and `matrix` are (difflib) if one letter is missing, wrong or out of place; `max` and `metric` are
less so."""


def meant(text: str) -> Iterator[re.Match[str]]:
    """The placeholders in a text, well-formed or not, misspelt ones too; `name` is the value's. Shell variables have no
    dot in their names, so they are none."""
    return (match for match in _MEANT.finditer(text) if _is_matrix(match["matrix"].lower()))


def _is_matrix(word: str) -> bool:
    if word == "matrix":
        return True
    from difflib import SequenceMatcher  # only ever needed on the way to an error

    return SequenceMatcher(a=word, b="matrix").ratio() >= _AS_GOOD_AS_MATRIX


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
    """A finding for each such value in a job file that is read by itself."""
    hint = "submit the group file that names this job file, or write the value"
    for loc, text, is_key in texts_of(tree, ()):
        for match in meant(text):
            message = f"{quoted(match[0].rstrip())} stands for a value of a group's matrix"
            yield Finding(loc, message, hint, "key" if is_key else "value")
