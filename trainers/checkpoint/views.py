"""The memory layout of tensors and arrays, which of them share memory, and a rank's part of a sharded tensor."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import torch

Span = tuple[str, int, int]
"""A device, and the addresses there of the first byte and after the last byte."""


def is_sharded(value: Any) -> bool:
    """True for a DTensor (of FSDP2, for example): a tensor that is sharded over ranks, or replicated on them."""
    module = sys.modules.get("torch.distributed.tensor")  # there is none before this is imported, which takes a second
    return module is not None and isinstance(value, module.DTensor)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, or the whole plain tensor."""
    if not is_sharded(tensor):
        return tensor
    held: Any = tensor.detach().to_local()  # type: ignore[attr-defined]
    return held.wait() if hasattr(held, "wait") else held  # type: ignore[no-any-return]  # of an unfinished collective


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor; a DTensor is gathered, so all of its ranks must call this."""
    return tensor.detach().full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def form(value: Any) -> object:
    """The properties that cannot be changed in place: dtype, shape and layout, or the maximum length of a deque."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.layout
    if isinstance(value, numpy.ndarray):
        return value.dtype, value.shape
    return value.maxlen if isinstance(value, deque) else None


def repeats(tensor: torch.Tensor) -> bool:
    """True if several elements may share memory, as after expand() and unfold()."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    reach = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step < reach:
            return True
        reach += (size - 1) * step
    return False


def laid_out(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """A tensor with the same values and these strides."""
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)


def view_of_other(late: Iterable[tuple[str, Any]], others: Iterable[tuple[str, Any]]) -> tuple[str, str] | None:
    """The names of one of `late` (tensors and arrays by name) and of another one, in `late` or `others`, that shares
    its memory; None if there is none. Entries of `late` with identical elements count as one.
    """
    distinct = {(span, *_layout(value)): (span, name) for name, value in late if (span := _span(value)) is not None}
    if not distinct:
        return None
    spans = [(span, True, name) for span, name in distinct.values()]
    spans += [(span, False, name) for name, value in others if (span := _span(value)) is not None]
    furthest: dict[bool, tuple[str, int, str]] = {}  # of the tensors so far, late or not, the one that ends last
    for span, is_late, name in sorted(spans):
        for other_is_late, (device, end, other) in furthest.items():
            if (is_late or other_is_late) and device == span[0] and span[1] < end:
                return (name, other) if is_late else (other, name)
        if is_late not in furthest or furthest[is_late][:2] < (span[0], span[2]):
            furthest[is_late] = (span[0], span[2], name)
    return None


def _span(value: Any) -> Span | None:
    if isinstance(value, torch.Tensor):
        value = local(value)
        if value.layout is not torch.strided or value.is_meta or not value.numel():
            return None
        reach = sum((size - 1) * step for step, size in zip(value.stride(), value.shape, strict=True)) + 1
        return str(value.device), value.data_ptr(), value.data_ptr() + reach * value.element_size()
    if isinstance(value, numpy.ndarray) and value.size:
        steps = [(size - 1) * step for step, size in zip(value.strides, value.shape, strict=True)]
        begin = value.ctypes.data + sum(step for step in steps if step < 0)
        return "cpu", begin, value.ctypes.data + sum(step for step in steps if step > 0) + value.itemsize
    return None


def _layout(value: Any) -> tuple[object, ...]:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.stride()
    return value.dtype, value.shape, value.strides
