"""Given: what the program handed to attach(), captured, and restored into the very objects that it handed over.

A program may know them by other names: `history = []`, `extra={"history": history}`. So a checkpoint says of each list,
dict, set, deque, tensor and array in it which of those objects it is; a resume puts the saved content into the one that
the resuming program handed over in its place. What came later, or took the place of another object, is made anew, for
whoever knows it by another name got that name from the dict. Numbers and texts cannot be filled: they are read from the
dict that holds them.

Must not know: files, when to save.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch

from trainers.checkpoint.state import Encoder, capture, is_part, restore
from trainers.errors import StateError

_SAME = "attach what the saving run attached"
_FILLED = (list, dict, set, deque, bytearray, torch.Tensor, numpy.ndarray)
_FIXED = (type(None), bool, int, float, str, bytes, frozenset, numpy.generic)
_KEPT_LISTS = (list, tuple, deque)


class Given:
    """The parts of one run, by name. A place is "name.2.0": of the first item of the third item of that part."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """Raises StateError for what cannot be saved, or not be restored in place."""
        self._parts = dict(parts)
        for name, part in self._parts.items():
            if not (is_part(part) or isinstance(part, dict)):
                raise StateError(
                    f"attach() was given a {type(part).__name__} as {name}, which cannot be saved and restored",
                    hint="give it state_dict() and load_state_dict(), or put it in a dict",
                )
        self._objects = {place: value for place, _, value in self._walk()}
        self._forms = {place: _form(value) for place, value in self._objects.items()}
        self._at_attach = {path for _, path, _ in self._walk(parts=True)}
        for _, path, value in self._walk():
            _require_fillable(value, path)

    def require_data(self, name: str) -> None:
        """Raises StateError unless that part is made of parts and data. Parts are not asked for their state."""
        _require_data(self._parts.get(name), name)

    def require_kept(self, name: str, *, besides: int) -> None:
        """Raises StateError when numbers or texts are in that dict and the program has not kept it: it could neither
        change them there nor read them after a resume. `besides`: how many references to it the caller has itself."""
        values = self._parts.get(name)
        fixed = [key for key, value in values.items() if isinstance(value, _FIXED)] if type(values) is dict else []
        del values
        if fixed and self._references(name) <= Given({name: {}})._references(name) + besides:
            raise StateError(
                f"{name} has the value of {fixed[0]}, and the program has not kept the dict: what it holds under "
                "another name is neither saved nor restored",
                hint=f'keep the dict in a variable, and read and write {name}["{fixed[0]}"] there in every step',
            )

    def _references(self, name: str) -> int:
        return sys.getrefcount(self._parts[name])

    def capture(self) -> dict[str, Any]:
        """The state of each part, by its name."""
        return {name: capture(part) for name, part in self._parts.items()}

    def same(self) -> dict[str, str]:
        """Which of the objects that were given is where now: place now -> place then.

        Raises StateError for what a resume would not find or could not bring back.
        """
        if changed := {path for _, path, _ in self._walk(parts=True)} ^ self._at_attach:
            path = min(changed)
            what = "was taken away" if path in self._at_attach else "came"
            raise StateError(
                f"{path} {what} after attach(): a resume would find other objects to restore than there are now",
                hint="hand over all objects that have a state to attach(), and leave them in their dict",
            )
        known = {id(value): place for place, value in self._objects.items()}
        same = {}
        for place, path, value in self._walk():
            given = known.get(id(value))
            if given is None:
                if type(value) is defaultdict:
                    raise StateError(
                        f"{path} is a defaultdict that came after attach(): what it is made with cannot be saved",
                        hint="hand it over to attach(), or use a plain dict",
                    )
                continue
            if _form(value) != self._forms[given]:
                raise StateError(
                    f"{path} has another shape, type or length than when it was given to attach(), which a resume "
                    "could not give to the object that it finds",
                    hint="put a new object into the dict instead",
                )
            same[place] = given
        # what has left the parts is not kept alive for their sake
        self._objects = {place: self._objects[place] for place in set(same.values())}
        return same

    def restore(self, items: Mapping[str, Any], same: Mapping[str, str]) -> None:
        """Put captured states back. Raises StateError when they are not those of the same parts."""
        for name, part in self._parts.items():
            self._back(items[name], part, name, name, same)

    def _back(self, value: Any, present: Any, place: str, path: str, same: Mapping[str, str]) -> Any:
        """What is to be at `place`, where there is `present`, with its content restored."""
        if is_part(present):
            restore(present, value, path)
            return present
        given = self._objects.get(same.get(place, ""))
        target = value if given is None else given
        if _kind(target) is not _kind(value) or _form(target) != _form(value):
            raise StateError(
                f"{path} is a {_told(value)} in the checkpoint, and a {_told(target)} in the program", hint=_SAME
            )
        if isinstance(value, dict):
            return self._dict(target, value, present if isinstance(present, dict) else {}, place, path, same)
        if isinstance(value, _KEPT_LISTS):
            found = [None] * len(value) if not isinstance(present, _KEPT_LISTS) else [*present]
            found += [None] * (len(value) - len(found))
            made = [
                self._back(item, found[number], f"{place}.{number}", f"{path}.{number}", same)
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

    def _dict(
        self, target: Any, value: Any, present: dict[Any, Any], place: str, path: str, same: Mapping[str, str]
    ) -> Any:
        for key, item in present.items():
            if is_part(item) and key not in value:
                raise StateError(f"the checkpoint has no {path}.{key}", hint=_SAME)
        made = {
            key: self._back(item, present.get(key), f"{place}.{number}", f"{path}.{key}", same)
            for number, (key, item) in enumerate(value.items())
        }
        target.clear()
        target.update(made)
        if isinstance(target, OrderedDict):
            vars(target).update(vars(value))  # torch hangs the versions of modules on the dict
        return target

    def _walk(self, *, parts: bool = False) -> Iterator[tuple[str, str, Any]]:
        """Place, path and object of all that could be filled (or of all parts), in their order."""
        for name, part in self._parts.items():
            yield from _walked(part, name, name, parts)


def _walked(value: Any, place: str, path: str, parts: bool) -> Iterator[tuple[str, str, Any]]:
    if is_part(value):
        if parts:
            yield place, path, value
        return
    if not parts:
        yield place, path, value
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, _KEPT_LISTS):
        items = enumerate(value)
    else:
        return
    for number, (key, item) in enumerate(items):
        if isinstance(item, _FILLED) or type(item) is tuple or is_part(item):
            yield from _walked(item, f"{place}.{number}", f"{path}.{key}", parts)


def _filled_list(target: Any, made: list[Any]) -> Any:
    if isinstance(target, deque):
        target.clear()
        target.extend(made)
    elif isinstance(target, list):
        target[:] = made
    elif len(made) != len(target) or not all(map(_equal, made, target)):
        return tuple(made)  # one that came later: nobody can change a tuple
    return target


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _FIXED) and repr(one) == repr(other))


def _kind(value: Any) -> type:
    """What it is in a checkpoint: the encoder knows subclasses as the same kind."""
    return next((kind for kind in (*_FILLED, tuple) if isinstance(value, kind)), object)


def _form(value: Any) -> object:
    """What cannot be changed in place."""
    if isinstance(value, torch.Tensor | numpy.ndarray):
        return value.dtype, tuple(value.shape)
    return value.maxlen if isinstance(value, deque) else None


def _told(value: Any) -> str:
    form = _form(value)
    return type(value).__name__ + (f" of {form[0]} and shape {form[1]}" if isinstance(form, tuple) else "")


def _require_fillable(value: Any, path: str) -> None:
    remedy = None
    if isinstance(value, numpy.ndarray) and not value.flags.writeable:
        remedy = "copy()"
    elif isinstance(value, torch.Tensor) and (value.is_inference() or _repeats(value)):
        remedy = "clone()"
    if remedy is not None:
        raise StateError(
            f"{path} is a {type(value).__name__} that cannot be written to, and so not be restored in place",
            hint=f"hand over its {remedy}",
        )


def _require_data(part: Any, path: str) -> None:
    if isinstance(part, dict):
        for key, item in part.items():
            _require_data(item, f"{path}.{key}")
    elif not is_part(part):
        Encoder().encode(part, path)


def _repeats(value: torch.Tensor) -> bool:
    """Whether several of its numbers are one in memory, as expand() makes them."""
    strided = value.layout is torch.strided
    return strided and any(not step and size > 1 for step, size in zip(value.stride(), value.shape, strict=True))
