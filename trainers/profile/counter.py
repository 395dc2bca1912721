"""Counter: counts the operations that torch dispatches, in forward, backward and optimizer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_NARROW = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_NARROW |= {kind: "fp8" for name in ("float8_e4m3fn", "float8_e5m2") if (kind := getattr(torch, name, None))}
_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward", "aten::convolution_overrideable")
# A step with fewer FLOPs per byte mainly reads and writes tables; a product of 16 rows has 8 FLOPs per byte at FP32.
_LOOKUP_INTENSITY = 0.5
# They read few rows of a large table: their traffic is twice the bytes that they write, not the size of the table.
_LOOKUPS = ("aten::embedding", "aten::index", "aten::index_select", "aten::gather")
# Whole recurrent layers in one operation, for which torch has no formula; backward takes twice the work.
_RECURRENT = {
    "aten::mkldnn_rnn_layer": 1.0,
    "aten::mkldnn_rnn_layer_backward": 2.0,
    "aten::_cudnn_rnn": 1.0,
    "aten::_cudnn_rnn_backward": 2.0,
}


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts in its `with` block: FLOPs by torch's formulas, bytes read and written (views are free), operations, their
    seconds, and the bytes that autograd keeps for the backward pass.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0
        self.half_flops = 0.0
        self._by_precision: dict[str, float] = defaultdict(float)
        self._by_sort: dict[str, float] = defaultdict(float)
        self.traffic_bytes = 0.0
        self.operations = 0
        self.computing_s = 0.0
        self._kept: dict[int, int] = {}
        self._keeping = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)

    @property
    def activation_bytes(self) -> int:
        """Bytes that autograd keeps for the backward pass."""
        return sum(self._kept.values())

    @property
    def precision(self) -> str | None:
        """The precision of most FLOPs; None without any."""
        return max(self._by_precision, key=self._by_precision.__getitem__, default=None)

    @property
    def sort(self) -> str:
        """The kind of most FLOPs: matrices (including attention), convolutions or recurrences; or lookups, if there are
        few FLOPs for the bytes read and written.
        """
        if self.flops < _LOOKUP_INTENSITY * self.traffic_bytes:
            return "lookups"
        return max(self._by_sort, key=self._by_sort.__getitem__)

    def ignore(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do not count these tensors as activations: parameters are also kept for backward, but exist anyway."""
        for tensor in tensors:
            self._kept.pop(tensor.untyped_storage().data_ptr(), None)

    def __enter__(self) -> Self:
        self._keeping.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._keeping.__exit__(kind, error, trace)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        began_s = time.perf_counter()
        out = func(*args, **(kwargs or {}))
        took_s = time.perf_counter() - began_s
        if _is_view(func):
            return out
        written = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not written and not read:
            return out
        self.operations += 1
        self.computing_s += took_s
        name = func._schema.name
        sides = [*written, *written] if name in _LOOKUPS else [*read, *written]
        self.traffic_bytes += sum(tensor.numel() * tensor.element_size() for tensor in sides)
        flops = _flops(func, args, kwargs or {}, out)
        if flops:
            sort = "convolutions" if name in _CONVOLUTIONS else "recurrences" if name in _RECURRENT else "matrices"
            precision = _precision({tensor.dtype for tensor in (*written, *read)}, sort)
            self.flops += flops
            self.half_flops += flops if precision in _NARROW.values() else 0.0
            self._by_precision[precision] += flops
            self._by_sort[sort] += flops
        return out

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self._kept[storage.data_ptr()] = storage.nbytes()
        return tensor


def _flops(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> float:
    """FLOPs of an operation; 0 for everything except matrix products, convolutions, attention and recurrent layers."""
    times = _RECURRENT.get(func._schema.name)
    if times is not None:
        positions = args[0].numel() / args[0].shape[-1]
        weights = [t for t in tree_leaves(args[1:5]) if isinstance(t, torch.Tensor) and t.dim() == 2]
        return float(times * 2 * positions * sum(weight.numel() for weight in weights))
    formula = flop_registry.get(func._overloadpacket)
    return 0.0 if formula is None else float(formula(*args, **kwargs, out_val=out))


def _precision(dtypes: set[torch.dtype], sort: str) -> str:
    """The narrowest type of an operation's tensors; for 32 bits, whether torch may round products to TF32 on a GPU."""
    found = {_NARROW[dtype] for dtype in dtypes if dtype in _NARROW}
    for precision in ("fp8", "bf16", "fp16"):
        if precision in found:
            return precision
    if sort == "matrices":
        return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return "tf32" if torch.backends.cudnn.allow_tf32 else "fp32"


def _is_view(func: Any) -> bool:
    """True if an operation only changes the shape of existing data."""
    if func._schema.name == "aten::_unsafe_view":
        return True
    returns = func._schema.returns
    return bool(returns) and all(each.alias_info is not None and not each.alias_info.is_write for each in returns)
