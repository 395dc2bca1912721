"""Detects data sets with memory, whose samples depend on earlier ones, so that a resume must restore that memory.

Data sets with `state_dict` and `load_state_dict` save it themselves. Others are watched: a number, text, small tensor
or random number generator of a data set (or of what it holds) that changes while a sample is fetched is memory.
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
_MOST_NUMBERS = 4096  # of a watched tensor or array; larger ones count as data
# Seeded for each sample, so a data set may draw from them.
_GLOBAL = {id(vars(random)["_inst"]), id(numpy.random.mtrand._rand), id(torch.default_generator)}


def keepers(dataset: Any, path: str = "dataset") -> Iterator[tuple[str, Any]]:
    """The data sets within `dataset`, including itself, that can save and restore their state, by path."""
    for at, part in _datasets(dataset, path):
        if _keeps(part):
            yield at, part


def memory(dataset: Any) -> dict[str, object]:
    """The values that data sets within `dataset` remember outside a state_dict: comparable, by path."""
    found: dict[str, object] = {}
    for path, part in _datasets(dataset, "dataset"):
        if not _keeps(part):
            for name, value in _attributes(part):
                _remember(value, f"{path}.{name}", found)
    return found


def memory_of(part: Any, path: str) -> dict[str, object]:
    """The values that an object other than a data set remembers: comparable, by path."""
    found: dict[str, object] = {}
    for name, value in _attributes(part):
        _remember(value, f"{path}.{name}", found)
    return found


def require_unchanged(before: dict[str, object], after: dict[str, object]) -> None:
    """Raises LoaderError, which names the value that changed while a sample was fetched or a batch was made."""
    for path, value in before.items():
        if path in after and type(after[path]) is type(value) and after[path] != value:
            raise LoaderError(
                f"fetching a sample changed {path}: later samples depend on earlier ones, so they would differ "
                "after a resume",
                hint="give its class state_dict() and load_state_dict(), draw random numbers from the global "
                "generators of random, numpy or torch, or remove it",
            )


def _datasets(part: Any, path: str, depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """The data set and the data sets in it. A data set that saves its state covers everything in it."""
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
        pass  # handled separately
    else:
        _remember_generators(value, path, found)


def _remember_generators(value: Any, path: str, found: dict[str, object], depth: int = 2) -> None:
    """Only generators: numbers in other objects (files, caches) change for unrelated reasons."""
    if is_generator(value):
        if id(value) not in _GLOBAL:
            found[path] = _comparable(generator_state(value))
    elif depth and not isinstance(value, type | ModuleType) and not callable(getattr(value, "__get__", None)):
        for name, item in _attributes(value):
            _remember_generators(item, f"{path}.{name}", found, depth - 1)


def _comparable(value: Any) -> object:
    """A value that is equal if all numbers are, including NaN."""
    if isinstance(value, torch.Tensor | numpy.ndarray):
        return repr(value.tolist())
    if isinstance(value, dict):
        return [(key, _comparable(item)) for key, item in value.items()]
    return repr(value) if isinstance(value, float) else value
