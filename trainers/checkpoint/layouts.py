"""Layouts: where a program has its tensors, and how it shards them over ranks (DTensor), by the names that their values
have in checkpoints.

A checkpoint's "model.layer.weight" is sharded like the parameter of that name, and so are its gradient and its
optimizer state, if their shapes are equal. Everything else is whole on every rank.

Checkpoints are read directly into parameters in this host's memory: the kernel would first have to clear new memory,
which takes longer than reading. If a checkpoint turns out to be damaged, an older one overwrites them, or the run ends.
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
    """The layouts of the parts of one run. `parameters`: all parameters, by name."""

    def __init__(self, parts: Mapping[str, Any], parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = {name: tensor for name, tensor in parameters.items() if is_sharded(tensor)}
        shown = dict(_shown(parts, ""))
        self._exact = {name: tensor for name, tensor in shown.items() if is_sharded(tensor)}
        self._exact |= {f"transient.gradients.{name}": tensor for name, tensor in self._parameters.items()}
        held = {tensor.data_ptr() for tensor in parameters.values() if _is_readable_into(tensor)}
        self.in_place = {
            name: tensor for name, tensor in shown.items() if _is_readable_into(tensor) and tensor.data_ptr() in held
        }
        """Memory of parameters, whole and row-major, by the names of their values."""

    def of(self, items: Mapping[str, Any]) -> Like:
        """How to shard the tensors of a checkpoint with these items (JSON), which name each optimizer's parameters."""
        groups: dict[str, list[list[str]]] = items["transient"]["groups"] if "transient" in items else {}
        numbered = {path: [name for group in names for name in group] for path, names in groups.items()}

        def like(name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
            found = self._exact.get(name)
            if found is None and (match := _OF_OPTIMIZER.fullmatch(name)):
                names, number = numbered.get(match[1], []), int(match[2])
                found = self._parameters.get(names[number]) if number < len(names) else None
            return found if found is not None and tuple(found.shape) == shape else None

        return like


def _shown(part: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of modules (of their state_dict), and directly attached tensors, by name in a checkpoint."""
    if isinstance(part, torch.nn.Module):
        part = part.state_dict()
    if isinstance(part, Mapping):
        for key, item in part.items():
            yield from _shown(item, f"{path}.{key}" if path else str(key))
    elif isinstance(part, torch.Tensor):
        yield path, part


def _is_readable_into(tensor: torch.Tensor) -> bool:
    if torch.nn.parameter.is_lazy(tensor):  # it has no shape before the first batch
        return False
    plain = not is_sharded(tensor) and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return plain and tensor.numel() > 0 and tensor.is_contiguous() and not tensor.is_inference()
