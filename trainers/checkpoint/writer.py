"""Writes a checkpoint of the attached objects, at once and in this process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy
import torch

from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.packing import Described, Values, write_checkpoint
from trainers.checkpoint.retention import Keep
from trainers.checkpoint.state import Encoder, dtype_name, tensor_bytes
from trainers.objects.opening import Root


def save(
    root: Root,
    job: str,
    name: ManifestName,
    *,
    items: Mapping[str, Any],
    position: Any,
    keep: Keep | int,
    about: Mapping[str, float] = MappingProxyType({}),
    frozen: Collection[str] = (),
    before_commit: Callable[[], None] = lambda: None,
) -> ManifestName:
    """Write a checkpoint of `items` (by component) and the data `position`; durable on return. `frozen`: the paths of
    tensors that training does not change.

    `before_commit` may raise an error to prevent the commit. Returns the name of the committed checkpoint. Raises
    StateError, CheckpointFull, CheckpointReadOnly and FencedError; then nothing is committed.
    """
    described, tensors = encoded(items, position, frozen, about)
    return write_checkpoint(root, job, name, described, values(tensors), keep=keep, before_commit=before_commit)


def encoded(
    items: Mapping[str, Any],
    position: Any,
    frozen: Collection[str] = (),
    about: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Described, list[tuple[str, torch.Tensor]]]:
    """A state as JSON, and its tensors by path, which are not copied. Raises StateError."""
    encoder = Encoder()
    nodes = {key: encoder.encode(value, key) for key, value in items.items()}
    where = encoder.encode(position, "position")
    return Described(nodes, where, versions(), dict(about), sorted(frozen)), encoder.tensors


def values(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[Values]:
    """The bytes of tensors, one after the other."""
    for path, tensor in tensors:
        yield Values(path, dtype_name(tensor), tuple(tensor.shape), tensor_bytes(tensor))


def versions() -> dict[str, str]:
    """The software versions for the manifest."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": numpy.__version__}
