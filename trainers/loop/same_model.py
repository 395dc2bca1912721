"""Explains how a program's model differs from a checkpoint that cannot be restored into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from trainers.errors import StateError

_MOST = 3  # names of each kind


@contextmanager
def explained(parts: Mapping[str, Any], items: Mapping[str, Any]) -> Iterator[None]:
    """In this block, `items` of a checkpoint are restored into `parts`. If the error is due to a different model,
    raises StateError, which names the differences between the checkpoint and the program.
    """
    try:
        yield
    except (RuntimeError, StateError) as error:
        if (difference := next(_differences(parts, items, ""), None)) is None:
            raise
        raise StateError(difference, hint="build the model that was saved, or submit a new job") from error


def _differences(part: Any, saved: Any, path: str) -> Iterator[str]:
    if isinstance(part, torch.nn.Module) and isinstance(saved, Mapping):
        yield from _of_model(part.state_dict(), saved, path)
    elif isinstance(part, Mapping) and isinstance(saved, Mapping):
        for name in part.keys() & saved.keys():
            yield from _differences(part[name], saved[name], f"{path}.{name}" if path else str(name))


def _of_model(present: Mapping[str, Any], saved: Mapping[str, Any], path: str) -> Iterator[str]:
    gone, new = saved.keys() - present.keys(), present.keys() - saved.keys()
    if gone or new:
        yield f"the {path} of the checkpoint has {_named(gone)}, which the program lacks; the program has {_named(new)}"
    for name, value in saved.items():
        other = present.get(name)
        if not (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)) or is_lazy(other):
            continue
        if value.shape != other.shape:
            shapes = f"{tuple(value.shape)} in the checkpoint, but {tuple(other.shape)} in the program"
            yield f"{path}.{name} has the shape {shapes}"


def _named(names: Any) -> str:
    found = sorted(map(str, names))
    if not found:
        return "nothing more"
    return ", ".join(found[:_MOST]) + (f" and {len(found) - _MOST} more" if len(found) > _MOST else "")
