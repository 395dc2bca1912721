"""AttachedObjects: captures the objects that the program gave to attach() and restores into the same objects.

A program may hold other references: `history = []`, `extra={"history": history}`. So a checkpoint records which of the
attached objects each list, dict, set, deque, tensor and array is, and a resume puts the saved content into the
corresponding object of the resuming program (trainers.checkpoint.filling). For objects that were added later or
replaced another one, new objects are created, one for each: a program can reach them only through the dict. Numbers and
text cannot be restored in place: they are read from the dict that contains them.
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


class AttachedObjects:
    """The parts of one run, by name. A place such as "name.2.0" is the first item of the third item of the part."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """Raises StateError for objects that cannot be saved or cannot be restored in place."""
        self._parts = dict(parts)
        for name, part in self._parts.items():
            if not (is_part(part) or isinstance(part, dict)):
                raise StateError(
                    f"{name} in attach() is a {type(part).__name__}, which cannot be saved and restored",
                    hint="give it state_dict() and load_state_dict(), or put it in a dict",
                )
        self._objects = {place: value for place, _, value in self._walk()}
        self._forms = {place: form(value) for place, value in self._objects.items()}
        self._at_attach = {path for _, path, _ in self._walk(parts=True)}
        for _, path, value in self._walk():
            _require_fillable(value, path)

    def require_data(self, name: str) -> None:
        """Raises StateError unless this part consists of parts and data. Does not read the state of parts."""
        _require_data(self._parts.get(name), name)

    def require_kept(self, name: str, *, besides: int) -> None:
        """Raises StateError if this dict has numbers or text and the program keeps no reference to the dict.

        The program could then neither change them nor read them after a resume. `besides`: the number of references
        that the caller has.
        """
        values = self._parts.get(name)
        fixed = [key for key, value in values.items() if isinstance(value, FIXED)] if type(values) is dict else []
        del values
        if fixed and self._references(name) <= AttachedObjects({name: {}})._references(name) + besides:
            raise StateError(
                f"{name} has the value of {fixed[0]}, but the program keeps no reference to the dict: a copy in "
                "another variable is neither saved nor restored",
                hint=f'keep the dict in a variable, and read and write {name}["{fixed[0]}"] there in every step',
            )

    def _references(self, name: str) -> int:
        return sys.getrefcount(self._parts[name])

    def capture(self) -> dict[str, Any]:
        """The state of each part, by name."""
        return {name: capture(part) for name, part in self._parts.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that were attached directly, by place."""
        return {place: value for place, value in self._objects.items() if isinstance(value, torch.Tensor)}

    def same(self) -> dict[str, dict[str, str]]:
        """Two maps: where each attached object is now (current place -> place at attach()), and for each later object
        in several places, its first place (place -> first place).

        Raises StateError for objects that a resume could not find or restore.
        """
        if changed := {path for _, path, _ in self._walk(parts=True)} ^ self._at_attach:
            path = min(changed)
            what = "was removed" if path in self._at_attach else "was added"
            raise StateError(
                f"{path} {what} after attach(): a resume could not match it with its saved state",
                hint="pass all objects that have state to attach(), and leave them in their dict",
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
                        f"{path} differs in shape, type or length from when it was given to attach(): a resume could "
                        "not restore it in place",
                        hint="put a new object into the dict instead",
                    )
            elif id(value) in late:
                again[place] = late[id(value)][0]
            else:
                _require_remakable(value, path)
                late[id(value)] = place, path, value
        # do not keep removed objects alive
        self._objects = {place: self._objects[place] for place in set(given.values())}
        self._require_own_memory([(path, value) for _, path, value in late.values()])
        return {"given": given, "again": again}

    def restore(self, items: Mapping[str, Any], same: Mapping[str, Mapping[str, str]]) -> None:
        """Restore captured states. Raises StateError if they do not belong to the same parts."""
        filling = Filling(self._objects, same["given"], same["again"])
        for name, part in self._parts.items():
            filling.back(items[name], part, name, name)

    def _require_own_memory(self, late: list[tuple[str, Any]]) -> None:
        """Raises StateError for a tensor or array that was added later and is a view of another one: after a resume, it
        would no longer change together with it.
        """
        if found := view_of_other(late, self._memory()):
            raise StateError(
                f"{found[0]} was added after attach() and shares memory with {found[1]}: after a resume it would not",
                hint="use a copy: clone() of a tensor, copy.deepcopy() of a state_dict()",
            )

    def _memory(self) -> Iterator[tuple[str, Any]]:
        """All attached objects, including tensors within parts."""
        yield from self._objects.items()
        for _, path, part in self._walk(parts=True):
            if isinstance(part, torch.nn.Module):
                for name, tensor in (*part.named_parameters(), *part.named_buffers()):
                    yield f"{path}.{name}", tensor

    def _walk(self, *, parts: bool = False) -> Iterator[tuple[str, str, Any]]:
        """Place, path and object of everything that can be restored in place (or of all parts), in order."""
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
        raise StateError(f"{path} contains itself, which cannot be saved", hint="keep names, not references")
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
    """Raises StateError for a later object that a resume could not create."""
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
            f"{path} is a read-only {type(value).__name__}, which cannot be restored in place",
            hint=f"pass its {remedy} instead",
        )


def _require_data(part: Any, path: str) -> None:
    if isinstance(part, dict):
        Encoder().encode(dict.fromkeys(part), path)
        for key, item in part.items():
            _require_data(item, f"{path}.{key}")
    elif not is_part(part):
        Encoder().encode(part, path)
