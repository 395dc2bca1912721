"""Converts nested training state to JSON and tensors and back, bit for bit and without pickle.

Values that JSON cannot represent become a tagged node {"$": tag, ...}. Tensors, arrays and bytes become entries of one
list of tensors, referenced by position; two references to the same memory (tied weights) share an entry. A DTensor
becomes an entry like the whole tensor: nothing in the JSON depends on how it is sharded.
"""

from __future__ import annotations

import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from trainers.checkpoint.views import form, is_sharded, laid_out, local, repeats
from trainers.errors import StateError
from trainers.loop.rng import generator_state, is_generator, set_generator_state

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SEQUENCES: dict[type, str] = {
    tuple: "tuple",
    torch.Size: "size",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
}
_KEYS = (bool, int, str, float, bytes, numpy.generic)
_REFERRING = frozenset({"tensor", "bytes", "bytearray", "array", "scalar"})
_REBUILT: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "size": torch.Size,
    "set": set,
    "frozenset": frozenset,
}


@dataclass(slots=True)
class Encoder:
    """Collects the tensors of everything passed to `encode`, each under the path where it occurred first."""

    tensors: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    _places: dict[tuple[object, ...], int] = field(default_factory=dict)

    def encode(self, value: object, path: str) -> Any:
        """The JSON of `value`. Raises StateError that names `path` for an object that only pickle could save."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            assert isinstance(value, float)
            return value if value - value == 0.0 else {"$": "float", "v": struct.pack("<d", value).hex()}
        if kind is list:
            return self._list(value, path)
        if kind in _SEQUENCES:
            if isinstance(value, set | frozenset):
                _require_keys(value, path)
            node = {"$": _SEQUENCES[kind], "v": self._list(value, path)}
            return {**node, "maxlen": value.maxlen} if isinstance(value, deque) else node
        if isinstance(value, dict):
            return self._dict(value, path)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, bytes | bytearray):
            return {"$": kind.__name__, "v": self._raw(bytes(value), path)}
        if isinstance(value, numpy.ndarray | numpy.generic):
            return self._array(value, path)
        raise StateError(
            f"{path} is a {kind.__module__}.{kind.__qualname__}: checkpoints contain tensors and data, no pickles",
            hint="give it state_dict() and load_state_dict(), or keep it as numbers, text or tensors",
        )

    def _list(self, values: Any, path: str) -> list[Any]:
        return [self.encode(item, f"{path}.{place}") for place, item in enumerate(values)]

    def _dict(self, value: dict[Any, Any], path: str) -> Any:
        tag = {dict: "dict", OrderedDict: "ordered", defaultdict: "dict", Counter: "counter"}.get(type(value))
        if tag is None:
            raise StateError(
                f"{path} is a {type(value).__qualname__}, which cannot be saved without pickle",
                hint="return a plain dict from state_dict()",
            )
        if tag == "dict" and all(type(key) is str and not key.startswith("$") for key in value):
            return {key: self.encode(item, f"{path}.{key}") for key, item in value.items()}
        _require_keys(value, path)
        keys = [self.encode(key, f"{path} (key)") for key in value]
        pairs = list(zip(keys, (self.encode(item, f"{path}.{key}") for key, item in value.items()), strict=True))
        node = {"$": tag, "v": pairs}
        # torch.nn.Module.state_dict() attaches the versions of its modules to the dict.
        if (metadata := getattr(value, "_metadata", None)) is not None:
            node["metadata"] = self.encode(dict(metadata), f"{path} (metadata)")
        return node

    def _array(self, value: Any, path: str) -> Any:
        if not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
            raise StateError(
                f"{path} is a {type(value).__module__}.{type(value).__qualname__}: only plain arrays can be saved",
                hint="keep its values in a plain array, and its mask in another one",
            )
        if value.dtype.kind not in "biufc":
            raise StateError(
                f"{path} is an array of {value.dtype}: only arrays of numbers can be saved",
                hint="keep it as arrays of numbers (one for each field), or as a list",
            )
        node = {"v": self._raw(value.tobytes(), path), "dtype": value.dtype.str, "shape": list(value.shape)}
        if isinstance(value, numpy.generic):
            return {"$": "scalar", **node}
        return {"$": "array", **node, "order": "C" if value.flags.c_contiguous or not value.flags.f_contiguous else "F"}

    def _tensor(self, tensor: torch.Tensor, path: str) -> Any:
        if tensor.layout is torch.sparse_coo and not tensor.is_meta:
            parts = {"indices": tensor._indices(), "values": tensor._values()}
            places = {name: self._place(part.detach(), f"{path}.{name}") for name, part in parts.items()}
            return {"$": "sparse", "v": places, "shape": list(tensor.shape), "coalesced": tensor.is_coalesced()}
        node: dict[str, Any] = {"$": "tensor", "v": self._place(tensor, path)}
        # sums depend on the order in memory, so the order is part of the value
        if not is_sharded(tensor) and not tensor.is_contiguous() and not repeats(tensor):
            node["stride"] = list(tensor.stride())
        return node

    def _place(self, tensor: torch.Tensor, path: str) -> int:
        if is_sharded(tensor):
            return self._place_sharded(tensor, path)
        if type(tensor) not in _PLAIN_TENSORS or tensor.layout is not torch.strided or tensor.is_quantized:
            raise StateError(
                f"{path} is a {type(tensor).__name__} ({tensor.layout}, {tensor.dtype}): only plain tensors, dense or "
                "sparse_coo, can be saved",
                hint="convert it in state_dict(), and back in load_state_dict()",
            )
        if tensor.is_meta:
            raise StateError(f"{path} is on the meta device and has no values", hint="materialise it first")
        return self._once(tensor, _memory(tensor), path)

    def _place_sharded(self, tensor: torch.Tensor, path: str) -> int:
        if any(placement.is_partial() for placement in tensor.placements):  # type: ignore[attr-defined]
            raise StateError(f"{path} is a DTensor with partial sums", hint="call its redistribute() before saving it")
        held = local(tensor)
        if type(held) not in _PLAIN_TENSORS or held.layout is not torch.strided or held.is_meta:
            raise StateError(
                f"{path} is a DTensor of a {type(held).__name__} ({held.layout}): only plain, dense parts can be saved",
                hint="convert it in state_dict(), and back in load_state_dict()",
            )
        # a rank without a part of it has no address to recognize it by, but it has a storage
        return self._once(tensor, (tuple(tensor.shape), held.untyped_storage()._cdata, *_memory(held)), path)

    def _once(self, tensor: torch.Tensor, key: tuple[object, ...], path: str) -> int:
        if tensor.numel() and key in self._places:
            return self._places[key]
        self._places[key] = len(self.tensors)
        self.tensors.append((path, tensor.detach()))
        return self._places[key]

    def _raw(self, data: bytes, path: str) -> int:
        raw = torch.empty(len(data), dtype=torch.uint8)
        tensor_bytes(raw)[:] = data
        self.tensors.append((path, raw))
        return len(self.tensors) - 1


def _memory(tensor: torch.Tensor) -> tuple[object, ...]:
    """A key that is equal for two tensors with the same values in the same memory."""
    memory = (tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset())
    return (*memory, tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())


def _require_keys(keys: Iterable[object], path: str) -> None:
    """Raises StateError for a key that is compared by identity: a copy of it would not be found."""
    for key in keys:
        if isinstance(key, tuple | frozenset):
            _require_keys(key, path)
        elif key is not None and not isinstance(key, _KEYS):
            raise StateError(
                f"{path} has a {type(key).__module__}.{type(key).__qualname__} as key or member, which a resume "
                "cannot find again",
                hint="use names or numbers",
            )


def decode(node: Any, tensors: list[torch.Tensor]) -> Any:
    """The value that `Encoder.encode` turned into `node`, given the tensors in its order.

    May replace entries of `tensors` by tensors with the same values. A node that `encode` cannot have made raises
    ArithmeticError, LookupError, RecursionError, RuntimeError, TypeError, ValueError or struct.error.
    """
    if isinstance(node, list):
        return [decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    if "$" not in node:
        return {key: decode(item, tensors) for key, item in node.items()}
    tag, value = node["$"], node["v"]
    if tag == "float":
        return struct.unpack("<d", bytes.fromhex(value))[0]
    if tag == "tensor":
        return _strided(tensors, value, node["stride"]) if "stride" in node else _at(tensors, value)
    if tag == "sparse":
        numbers = _at(tensors, value["indices"]), _at(tensors, value["values"])
        return torch.sparse_coo_tensor(*numbers, node["shape"], is_coalesced=node["coalesced"], check_invariants=True)
    if tag in ("bytes", "bytearray"):
        return (bytes if tag == "bytes" else bytearray)(tensor_bytes(_at(tensors, value)))
    if tag in ("array", "scalar"):
        array = _array(_at(tensors, value), node["dtype"], node["shape"])
        return array[()] if tag == "scalar" else array.copy(node["order"])
    if tag == "deque":
        return deque((decode(item, tensors) for item in value), maxlen=node["maxlen"])
    if tag in _REBUILT:
        return _REBUILT[tag]([decode(item, tensors) for item in value])
    pairs = [(decode(key, tensors), decode(item, tensors)) for key, item in value]
    if tag == "ordered":
        ordered = OrderedDict(pairs)
        if "metadata" in node:
            ordered._metadata = OrderedDict(decode(node["metadata"], tensors))  # type: ignore[attr-defined]
        return ordered
    if tag == "counter":
        return Counter(dict(pairs))
    if tag == "dict":
        return dict(pairs)
    raise ValueError(f"unknown kind of value: {tag!r}")


def referred(node: Any) -> list[int]:
    """The tensors to which the JSON of a value refers, by position, in order."""
    if isinstance(node, list):
        return [place for each in node for place in referred(each)]
    if not isinstance(node, dict):
        return []
    if node.get("$") in _REFERRING:
        return [node["v"]]
    if node.get("$") == "sparse":
        return [*node["v"].values()]
    return referred([*node.values()])


def _at(tensors: Sequence[torch.Tensor], place: Any) -> torch.Tensor:
    if type(place) is not int or not 0 <= place < len(tensors):
        raise ValueError(f"there is no tensor {place!r}")
    return tensors[place]


def _strided(tensors: list[torch.Tensor], place: Any, stride: Any) -> torch.Tensor:
    """The tensor at `place` with these strides, for all references to it from now on."""
    dense = _at(tensors, place)
    if not is_sharded(dense) and list(dense.stride()) != stride:
        dense = tensors[place] = laid_out(dense, stride)
    return dense


def _array(raw: torch.Tensor, dtype: Any, shape: Any) -> numpy.ndarray[Any, Any]:
    kind = numpy.dtype(dtype) if type(dtype) is str else None
    if kind is None or kind.kind not in "biufc" or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"there is no array of {dtype!r} and {shape!r}")
    return numpy.frombuffer(bytes(tensor_bytes(raw)), kind).reshape(shape)


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The values of a tensor, row-major; without a copy if this is its layout in this host's memory. For a DTensor, the
    values that this rank holds.
    """
    flat = local(tensor).detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(bytearray())


def dtype_name(tensor: torch.Tensor) -> str:
    """The name of the dtype in the manifest."""
    return str(tensor.dtype).removeprefix("torch.")


def stored_dtype(name: str) -> torch.dtype:
    """The dtype of a stored tensor. Raises StateError if this torch does not have it."""
    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype):
        raise StateError(f"this torch has no dtype {name}", hint="resume with the torch version that saved it")
    return kind


def fitting_dtype(dtype: str, shape: Sequence[int], size_bytes: int) -> torch.dtype:
    """The dtype of a stored tensor. Raises StateError if this torch does not have it, or for another size in bytes."""
    kind = stored_dtype(dtype)
    if math.prod(shape) * kind.itemsize != size_bytes:
        raise StateError(f"{size_bytes} bytes do not fit {dtype} of shape {tuple(shape)}")
    return kind


@contextmanager
def unfilled() -> Iterator[None]:
    """In this block, new memory is not initialized, even if torch.use_deterministic_algorithms() makes torch.empty()
    fill it with NaN (https://docs.pytorch.org/docs/stable/deterministic.html): all of it is written anyway."""
    memory: Any = torch.utils.deterministic
    before = memory.fill_uninitialized_memory
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        memory.fill_uninitialized_memory = before


def empty_tensor(dtype: str, shape: Sequence[int], size_bytes: int) -> torch.Tensor:
    """Uninitialized memory for a stored tensor, separate for each tensor, so that its alignment is the same as in the
    run that saved it.

    Raises StateError for a dtype that this torch does not have or that does not fit `size_bytes`.
    """
    kind = fitting_dtype(dtype, shape, size_bytes)
    try:
        return torch.empty(tuple(shape), dtype=kind)
    except (RuntimeError, TypeError) as error:
        raise StateError(f"this torch cannot make {dtype} of shape {tuple(shape)}: {error}") from error


def capture(part: Any) -> Any:
    """The state of `part`: its state_dict(), the state of a generator, a dict of the states of a mapping's items, or
    plain data unchanged.
    """
    if hasattr(part, "state_dict"):
        return part.state_dict()
    if is_generator(part):
        return generator_state(part)
    if not isinstance(part, Mapping):
        return part
    states = {key: capture(item) for key, item in part.items()}
    return part if all(states[key] is item for key, item in part.items()) else states


def restore(part: Any, state: Any, path: str) -> None:
    """Restore a captured `state` into `part`, for which is_part() is True.

    Raises StateError for the state of another kind of generator, and the errors of load_state_dict.
    """
    if is_generator(part):
        set_generator_state(part, state, path)
        return
    groups = part.param_groups if isinstance(part, torch.optim.Optimizer) else []
    part.load_state_dict(state)
    if isinstance(part, torch.optim.Optimizer) and {"state", "param_groups"} <= state.keys():
        _undo_casts(part, state)
        _keep_groups(part, groups)


def _undo_casts(optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Undo casts of torch's load_state_dict: it converts an optimizer's state to the type of the parameter, so float32
    moments and master weights of a bfloat16 parameter would be rounded.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=False):
        held = optimizer.state.get(parameter, {})
        for name, value in state["state"].get(number, {}).items():
            present = held.get(name)
            cast = (
                isinstance(present, torch.Tensor) and isinstance(value, torch.Tensor) and present.dtype != value.dtype
            )
            if cast:
                held[name] = value.to(present.device, copy=True)


def _keep_groups(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
    """Keep the dicts and tensors of the groups, which torch's load_state_dict replaces: the program may hold references
    to them, to set learning rates.
    """
    for group, loaded in zip(groups, optimizer.param_groups, strict=True):
        for name, value in loaded.items():
            present = group.get(name)
            if isinstance(present, torch.Tensor) and isinstance(value, torch.Tensor) and form(present) == form(value):
                loaded[name] = present.copy_(value)
        group.clear()
        group.update(loaded)
    optimizer.param_groups = groups


def is_part(value: object) -> bool:
    """True if `value` has a state that can be captured and restored."""
    return hasattr(value, "load_state_dict") or is_generator(value)


def require_no_graph(value: object, path: str) -> None:
    """Raises StateError for a tensor that is still connected to its computation graph."""
    if isinstance(value, torch.Tensor) and value.grad_fn is not None:
        raise StateError(
            f"{path} still has its computation graph: a resume restores only its values, and backward() would stop",
            hint="store its detach(), and call backward() before the step ends",
        )
