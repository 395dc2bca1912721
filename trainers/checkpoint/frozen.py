"""Finds the tensors of a model that training does not change: parameters that need no gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn


def frozen(model: Any, path: str) -> Iterator[str]:
    """The paths of such parameters in a checkpoint, for a model or a mapping of models that is saved under `path`. A
    missing path, or a wrong one because the program changes the parameter itself, costs only space: see
    trainers.checkpoint.packing.store_tensors."""
    if isinstance(model, nn.Module):
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if not parameter.requires_grad:
                yield f"{path}.{name}"
    elif isinstance(model, Mapping):
        for key, each in model.items():
            yield from frozen(each, f"{path}.{key}")
