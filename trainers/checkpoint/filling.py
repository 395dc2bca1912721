"""Restores the content of one checkpoint into the objects that the program attached."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from trainers.checkpoint.state import is_part, restore
from trainers.checkpoint.views import form
from trainers.errors import StateError

FILLED = (list, dict, set, deque, bytearray, torch.Tensor, numpy.ndarray)
FIXED = (type(None), bool, int, float, str, bytes, frozenset, numpy.generic)
LISTS = (list, tuple, deque)
SAME = "attach what the saving run attached"


class Filling:
    """One restore.

    `objects`: the attached objects, by place; `given`: place in the checkpoint -> place at attach(); `again`: places of
    an object that was already restored for another place.
    """

    def __init__(self, objects: Mapping[str, Any], given: Mapping[str, str], again: Mapping[str, str]) -> None:
        self._objects = objects
        self._given = given
        self._again = again
        self._made: dict[str, Any] = {}

    def back(self, value: Any, present: Any, place: str, path: str) -> Any:
        """The object that belongs at `place`, where `present` is now, with restored content. Raises StateError."""
        if is_part(present):
            restore(present, value, path)
            return present
        if place in self._again:
            return self._made[self._again[place]]
        given = self._objects.get(self._given.get(place, ""))
        target = value if given is None else given
        if _kind(target) is not _kind(value) or form(target) != form(value):
            raise StateError(
                f"{path} is a {_described(value)} in the checkpoint, but a {_described(target)} in the program",
                hint=SAME,
            )
        filled = self._filled(target, value, present, place, path)
        if given is None:
            self._made[place] = filled
        return filled

    def _filled(self, target: Any, value: Any, present: Any, place: str, path: str) -> Any:
        if isinstance(value, dict):
            return self._dict(target, value, present if isinstance(present, dict) else {}, place, path)
        if isinstance(value, LISTS):
            found = [None] * len(value) if not isinstance(present, LISTS) else [*present]
            found += [None] * (len(value) - len(found))
            made = [
                self.back(item, found[number], f"{place}.{number}", f"{path}.{number}")
                for number, item in enumerate(value)
            ]
            return _filled_list(target, made)
        if isinstance(value, torch.Tensor):
            if target is value:
                return value.to(present.device) if isinstance(present, torch.Tensor) else value
            with torch.no_grad():
                target.copy_(value)
        elif isinstance(value, numpy.ndarray):
            target[...] = value
        elif isinstance(value, set):
            values = set(value)
            target.clear()
            target.update(values)
        elif isinstance(value, bytearray):
            target[:] = bytes(value)
        else:
            return value
        return target

    def _dict(self, target: Any, value: Any, present: dict[Any, Any], place: str, path: str) -> Any:
        for key, item in present.items():
            if is_part(item) and key not in value:
                raise StateError(f"the checkpoint has no {path}.{key}", hint=SAME)
        made = {
            key: self.back(item, present.get(key), f"{place}.{number}", f"{path}.{key}")
            for number, (key, item) in enumerate(value.items())
        }
        target.clear()
        target.update(made)
        if isinstance(target, OrderedDict):
            vars(target).update(vars(value))  # torch attaches the versions of modules to the dict
        return target


def _filled_list(target: Any, made: list[Any]) -> Any:
    if isinstance(target, deque):
        target.clear()
        target.extend(made)
    elif isinstance(target, list):
        target[:] = made
    elif len(made) != len(target) or not all(map(_equal, made, target)):
        return tuple(made)  # a tuple cannot be changed in place
    return target


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, FIXED) and repr(one) == repr(other))


def _kind(value: Any) -> type:
    """The kind of a value in a checkpoint: the encoder treats subclasses like their base class."""
    return next((kind for kind in (*FILLED, tuple) if isinstance(value, kind)), object)


def _described(value: Any) -> str:
    what = form(value)
    return type(value).__name__ + (f" of {what[0]} and shape {what[1]}" if isinstance(what, tuple) else "")
