"""Layouts: how a program divides its tensors among ranks (DTensor), by the names that their values have in checkpoints.

What a checkpoint calls "model.layer.weight" is divided like the parameter of that name, and so are its gradient and the
state that its optimizer keeps for it, if their shapes are equal. Everything else is whole on every rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from trainers.checkpoint.reader import Like
from trainers.checkpoint.views import is_sharded

_OF_OPTIMIZER = re.compile(r"(.+)\.state\.(\d+)\..+")


class Layouts:
    """Of the parts of one run. `parameters`: all parameters, by name."""

    def __init__(self, parts: Mapping[str, Any], parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = {name: tensor for name, tensor in parameters.items() if is_sharded(tensor)}
        self._exact = dict(_sharded(parts, "")) if self._parameters else {}
        self._exact |= {f"transient.gradients.{name}": tensor for name, tensor in self._parameters.items()}

    def of(self, items: Mapping[str, Any]) -> Like:
        """How to divide the tensors of a checkpoint with these items (JSON), which name each optimizer's parameters."""
        groups: dict[str, list[list[str]]] = items["transient"]["groups"] if "transient" in items else {}
        numbered = {path: [name for group in names for name in group] for path, names in groups.items()}

        def like(name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
            found = self._exact.get(name)
            if found is None and (match := _OF_OPTIMIZER.fullmatch(name)):
                names, number = numbered.get(match[1], []), int(match[2])
                found = self._parameters.get(names[number]) if number < len(names) else None
            return found if found is not None and tuple(found.shape) == shape else None

        return like


def _sharded(part: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The DTensors of modules, and those that were attached directly, by their names in a checkpoint."""
    if isinstance(part, torch.nn.Module):
        part = part.state_dict()
    if isinstance(part, Mapping):
        for key, item in part.items():
            yield from _sharded(item, f"{path}.{key}" if path else str(key))
    elif is_sharded(part):
        yield path, part
