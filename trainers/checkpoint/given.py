"""Given: what the program handed to attach(), captured, and restored into the very objects that it handed over.

A program may know them by other names: `history = []`, `extra={"history": history}`. So a checkpoint says of each list,
dict, set, deque, tensor and array in it which of those objects it is; a resume puts the saved content into the one that
the resuming program handed over in its place (trainers.checkpoint.filling). What came later, or took the place of
another object, becomes a new object, one for all of its places: a program can know it only from the dict.
Numbers and texts cannot be filled: they are read from the dict that holds them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch

from trainers.checkpoint.filling import FILLED, FIXED, LISTS, Filling
from trainers.checkpoint.state import Encoder, capture, is_part, require_no_graph
from trainers.checkpoint.views import form, repeats, view_of_other
from trainers.errors import StateError


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
        self._forms = {place: form(value) for place, value in self._objects.items()}
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
        fixed = [key for key, value in values.items() if isinstance(value, FIXED)] if type(values) is dict else []
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

    def tensors(self) -> dict[str, torch.Tensor]:
        """Those that were given as such, by place."""
        return {place: value for place, value in self._objects.items() if isinstance(value, torch.Tensor)}

    def same(self) -> dict[str, dict[str, str]]:
        """Which of the objects that were given is where now, place now -> place then; and of those that came later and
        are in several places, which was the first, place -> first place.

        Raises StateError for what a resume would not find or could not bring back.
        """
        if changed := {path for _, path, _ in self._walk(parts=True)} ^ self._at_attach:
            path = min(changed)
            what = "was removed" if path in self._at_attach else "was added"
            raise StateError(
                f"{path} {what} after attach(): a resume could not match them with the saved ones",
                hint="give all objects that have a state to attach(), and leave them in their dict",
            )
        known = {id(value): place for place, value in self._objects.items()}
        given, again = dict[str, str](), dict[str, str]()
        late = dict[int, tuple[str, str, Any]]()
        for place, path, value in self._walk():
            require_no_graph(value, path)
            if id(value) in known:
                given[place] = known[id(value)]
                if form(value) != self._forms[given[place]]:
                    raise StateError(
                        f"{path} has another shape, type or length than when it was given to attach(): a resume could "
                        "not restore it in place",
                        hint="put a new object into the dict instead",
                    )
            elif id(value) in late:
                again[place] = late[id(value)][0]
            else:
                _require_remakable(value, path)
                late[id(value)] = place, path, value
        # what has left the parts is not kept alive for their sake
        self._objects = {place: self._objects[place] for place in set(given.values())}
        self._require_own_memory([(path, value) for _, path, value in late.values()])
        return {"given": given, "again": again}

    def restore(self, items: Mapping[str, Any], same: Mapping[str, Mapping[str, str]]) -> None:
        """Put captured states back. Raises StateError when they are not those of the same parts."""
        filling = Filling(self._objects, same["given"], same["again"])
        for name, part in self._parts.items():
            filling.back(items[name], part, name, name)

    def _require_own_memory(self, late: list[tuple[str, Any]]) -> None:
        """Raises StateError for a tensor or array that came later and shows what is in another: a resume would make it
        one of its own, that no longer changes with the other."""
        if found := view_of_other(late, self._memory()):
            raise StateError(
                f"{found[0]} was added after attach() and shares memory with {found[1]}: after a resume it would not",
                hint="put a copy there: clone() of a tensor, copy.deepcopy() of a state_dict()",
            )

    def _memory(self) -> Iterator[tuple[str, Any]]:
        """All that was given, in parts too."""
        yield from self._objects.items()
        for _, path, part in self._walk(parts=True):
            if isinstance(part, torch.nn.Module):
                for name, tensor in (*part.named_parameters(), *part.named_buffers()):
                    yield f"{path}.{name}", tensor

    def _walk(self, *, parts: bool = False) -> Iterator[tuple[str, str, Any]]:
        """Location, path and object of all that could be filled (or of all parts), in their order."""
        for name, part in self._parts.items():
            yield from _walked(part, name, name, parts)


def _walked(
    value: Any, place: str, path: str, parts: bool, within: tuple[int, ...] = ()
) -> Iterator[tuple[str, str, Any]]:
    if is_part(value):
        if parts:
            yield place, path, value
        return
    if id(value) in within:
        raise StateError(f"{path} contains itself, which a checkpoint cannot", hint="keep names, not references")
    if not parts:
        yield place, path, value
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, LISTS):
        items = enumerate(value)
    else:
        return
    for number, (key, item) in enumerate(items):
        if isinstance(item, FILLED) or type(item) is tuple or is_part(item):
            yield from _walked(item, f"{place}.{number}", f"{path}.{key}", parts, (*within, id(value)))


def _require_remakable(value: Any, path: str) -> None:
    """Raises StateError for what came later and a resume could not make."""
    if type(value) is defaultdict:
        raise StateError(
            f"{path} is a defaultdict that was added after attach(): its default factory cannot be saved",
            hint="give it to attach(), or use a plain dict",
        )
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise StateError(
            f"{path} requires gradients and was added after attach(): its gradient could not be restored",
            hint="give it to attach(), or put its detach().clone() there",
        )


def _require_fillable(value: Any, path: str) -> None:
    remedy = None
    if isinstance(value, numpy.ndarray) and not value.flags.writeable:
        remedy = "copy()"
    elif isinstance(value, torch.Tensor) and (value.is_inference() or repeats(value)):
        remedy = "clone()"
    if remedy is not None:
        raise StateError(
            f"{path} is a {type(value).__name__} that cannot be written to, and so not be restored in place",
            hint=f"give its {remedy} instead",
        )


def _require_data(part: Any, path: str) -> None:
    if isinstance(part, dict):
        Encoder().encode(dict.fromkeys(part), path)
        for key, item in part.items():
            _require_data(item, f"{path}.{key}")
    elif not is_part(part):
        Encoder().encode(part, path)
