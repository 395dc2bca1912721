"""Does a data set remember what it was asked? If so, its samples depend on the past, and a resume must bring that back.

What can be saved has `state_dict` and `load_state_dict`. What has not is watched: a number, text, small tensor or
random number generator of a data set (or of what it holds) that changes while a sample is fetched is such a memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy
import torch
from torch.utils.data import Dataset

from trainers.errors import LoaderError
from trainers.loop.rng import generator_state, is_generator

_DEPTH = 4
_MOST_NUMBERS = 4096  # of a tensor or array that is watched; larger ones are taken for data
# Seeded anew for each sample, so a data set may draw from them.
_GLOBAL = {id(vars(random)["_inst"]), id(numpy.random.mtrand._rand), id(torch.default_generator)}


def keepers(dataset: Any, path: str = "dataset") -> Iterator[tuple[str, Any]]:
    """The data sets within `dataset`, itself included, that can save and restore their state, by path."""
    for at, part in _datasets(dataset, path):
        if _keeps(part):
            yield at, part


def memory(dataset: Any) -> dict[str, object]:
    """What the data sets within `dataset` remember that no state_dict holds, by path: comparable values."""
    found: dict[str, object] = {}
    for path, part in _datasets(dataset, "dataset"):
        if not _keeps(part):
            for name, value in _attributes(part):
                _remember(value, f"{path}.{name}", found)
    return found


def memory_of(part: Any, path: str) -> dict[str, object]:
    """What one object remembers that is not a data set, by path: comparable values."""
    found: dict[str, object] = {}
    for name, value in _attributes(part):
        _remember(value, f"{path}.{name}", found)
    return found


def require_unchanged(before: dict[str, object], after: dict[str, object]) -> None:
    """Raises LoaderError naming what fetching a sample, or making a batch, changed."""
    for path, value in before.items():
        if path in after and type(after[path]) is type(value) and after[path] != value:
            raise LoaderError(
                f"fetching a sample changed {path}: the next samples depend on the earlier ones, so they would differ "
                "after a resume",
                hint="give its class state_dict() and load_state_dict(), draw random numbers from the global "
                "generators of random, numpy or torch, or do without it",
            )


def _datasets(part: Any, path: str, depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """The data set and those that it holds; one that saves its own state speaks for all that it holds."""
    yield path, part
    if depth == 0 or _keeps(part):
        return
    for name, value in _attributes(part):
        for place, item in enumerate(value) if type(value) in (list, tuple) and len(value) < 100 else [(None, value)]:
            if isinstance(item, Dataset):
                yield from _datasets(item, f"{path}.{name}" + ("" if place is None else f".{place}"), depth - 1)


def _keeps(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def _attributes(part: Any) -> list[tuple[str, Any]]:
    return list(getattr(part, "__dict__", {}).items())


def _remember(value: Any, path: str, found: dict[str, object]) -> None:
    if type(value) in (bool, int, float, str, bytes):
        found[path] = _comparable(value)
    elif isinstance(value, torch.Tensor | numpy.ndarray):
        if len(value.reshape(-1)) <= _MOST_NUMBERS:
            found[path] = _comparable(value)
    elif isinstance(value, Dataset):
        pass  # has its own turn
    else:
        _remember_generators(value, path, found)


def _remember_generators(value: Any, path: str, found: dict[str, object], depth: int = 2) -> None:
    """Generators alone: the numbers in other people's objects (files, caches) change for reasons of their own."""
    if is_generator(value):
        if id(value) not in _GLOBAL:
            found[path] = _comparable(generator_state(value))
    elif depth and not isinstance(value, type | ModuleType) and not callable(getattr(value, "__get__", None)):
        for name, item in _attributes(value):
            _remember_generators(item, f"{path}.{name}", found, depth - 1)


def _comparable(value: Any) -> object:
    """Equal when every number is, also one that is not a number."""
    if isinstance(value, torch.Tensor | numpy.ndarray):
        return repr(value.tolist())
    if isinstance(value, dict):
        return [(key, _comparable(item)) for key, item in value.items()]
    return repr(value) if isinstance(value, float) else value
