"""Any mapping -> a tree of dicts with text keys, lists and scalars that JSON can store and a terminal can show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath

from orchestrator.jobfile.source.source_map import Finding, Loc
from orchestrator.jobfile.units import quoted

_MAX_DEPTH = 40
_MAX_INT = 2**63 - 1  # the largest integer of every store
MOST_ENTRIES = 1000  # in each list or mapping
_FINE = ("", "")
_TOO_LARGE = "is too large a number", "write a smaller one; text, such as an ID, goes in quotes"
_NOT_FINITE = ("must be a finite number", "write digits, or put text in quotes")
LONGEST_TEXT = 131_072  # characters: Linux allows no longer argument or variable


def to_plain(value: object) -> tuple[object, list[Finding]]:
    """The normalised copy, and findings about values that could not be converted (they become None)."""
    findings: list[Finding] = []
    return _plain(value, (), findings), findings


def _plain(value: object, loc: Loc, findings: list[Finding]) -> object:
    if len(loc) > _MAX_DEPTH:
        findings.append(Finding(loc, "nested too deeply", "move it to a file that the program reads"))
        return None
    if isinstance(value, Mapping | list | tuple) and len(value) > MOST_ENTRIES:
        wrong = f"has {len(value):,} entries; at most {MOST_ENTRIES:,} are allowed"
        findings.append(Finding(loc, wrong, "put them into a file that the program reads", "key"))
        return None
    if isinstance(value, Mapping):
        return _plain_mapping(value, loc, findings)
    if isinstance(value, list | tuple):
        return [_plain(item, (*loc, index), findings) for index, item in enumerate(value)]
    wrong, hint = "", ""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str):
        value = str.__str__(value)  # the value of a str enum member
        wrong, hint = _wrong_text(value)
    elif isinstance(value, int):
        wrong, hint = ("", "") if abs(value) <= _MAX_INT else _TOO_LARGE
    elif isinstance(value, float):
        wrong, hint = ("", "") if math.isfinite(value) else _NOT_FINITE
    else:
        wrong, hint = f"a job file cannot hold {quoted(value)}", "give text, a number, true/false, a list or a mapping"
    if wrong:
        findings.append(Finding(loc, wrong, hint))
        return None
    return value


def _plain_mapping(value: Mapping[object, object], loc: Loc, findings: list[Finding]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            findings.append(Finding(loc, f"the key {quoted(key)} must be text", "put it in quotes"))
        elif (wrong := _wrong_text(key)) != _FINE:
            findings.append(Finding((*loc, key), f"the key {wrong[0]}", wrong[1], "key"))
        else:
            result[str.__str__(key)] = _plain(item, (*loc, key), findings)
    return result


def _wrong_text(text: str) -> tuple[str, str]:
    """(what is wrong with it, the remedy)."""
    if len(text) > LONGEST_TEXT:
        return f"is longer than {LONGEST_TEXT:,} characters", "put it into a file that the program reads"
    if "\0" in text:
        return "contains a NUL character", "delete it"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "contains an unpaired surrogate", "delete it, or write the whole character"
    return _FINE
