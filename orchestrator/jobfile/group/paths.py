"""Paths of a job that several files describe: each is relative to the folder of the file that contains it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.jobfile.checks import absolute, scheme
from orchestrator.jobfile.source.source_map import Loc

PATHS: tuple[tuple[str | None, ...], ...] = (("train", "workdir"), ("data", None, "source"), ("checkpoint", "to"))
"""The fields of a job file that are paths on this machine; None stands for each item of a list."""


def with_absolute_paths(tree: dict[str, object], folder_of: Callable[[Loc], str]) -> dict[str, object]:
    """The job's fields with absolute paths. `folder_of` returns the folder of the file that contains a value."""
    made: object = tree
    for path in PATHS:
        made = _made(made, path, (), folder_of)
    assert isinstance(made, dict)
    return made


def _made(value: object, path: Sequence[str | None], loc: Loc, folder_of: Callable[[Loc], str]) -> object:
    if not path:
        is_path = isinstance(value, str) and value.strip() and scheme(value) is None
        return absolute(str(value), folder_of(loc)) if is_path else value
    first, *rest = path
    if first is None:
        if not isinstance(value, list):
            return value
        return [_made(item, rest, (*loc, at), folder_of) for at, item in enumerate(value)]
    if not isinstance(value, dict) or first not in value:
        return value
    return {**value, first: _made(value[first], rest, (*loc, first), folder_of)}
