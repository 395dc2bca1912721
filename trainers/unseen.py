"""Unseen: what trains beside the attached parts and would begin anew after a resume, without a word.

That is an optimizer which attach() was not given, if it changes what was attached or lives longer than a step; a
scheduler of an attached optimizer and a scaler that nobody attached; and a loader's place that nobody saves. What is
held by an attached object is that object's to save: of an optimizer within another it is checked that it does.

Must not know: files, when to save.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainers.checkpoint.state import is_part
from trainers.data.loader import KeyedDataset, ResumableLoader
from trainers.errors import StateError

_DEPTH = 4  # of attributes, lists and dicts within one another
_MOST_ITEMS = 100  # of a list or dict; longer ones are taken for data
_LEAVES = (torch.Tensor, torch.nn.Module, str, bytes, int, float, type(None))  # hold nothing of that kind


class Unseen:
    """Watches one run. `parts`: all that is attached, and the loader."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = {path: part for name, each in parts.items() for path, part in _parts_in(each, name)}
        self._attached = {id(part) for part in self._parts.values()}
        self._used: dict[int, weakref.ref[torch.optim.Optimizer]] = {}  # in this step, of others, by identity
        self._earlier: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._looked_through = False
        watching = weakref.WeakMethod(self._stepped)
        register_optimizer_step_post_hook(lambda optimizer, *_: (call := watching()) and call(optimizer))

    def step_ended(
        self, parameters: Callable[[], Iterator[torch.Tensor]], captured: Callable[[], list[torch.Tensor]]
    ) -> None:
        """Look at what was used in this step. `parameters`: all that are attached; `captured`: what is saved of the
        parts. Raises StateError for what a resume would not find."""
        if self._looked_through and not self._used:
            return
        used = [optimizer for ref in self._used.values() if (optimizer := ref()) is not None]
        self._used.clear()
        held = self._held()
        for optimizer in used:
            if id(optimizer) not in held:
                self._require_short_lived(optimizer, {id(parameter) for parameter in parameters()})
            elif not self._is_known(optimizer):
                _require_captured(optimizer, held[id(optimizer)], captured())
        self._earlier = {key: ref for key, ref in self._earlier.items() if ref() is not None}
        self._earlier |= {id(optimizer): weakref.ref(optimizer) for optimizer in used}
        if not self._looked_through:
            self._looked_through = True
            self._require_nothing_else(held.keys())

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) not in self._attached:
            self._used[id(optimizer)] = weakref.ref(optimizer)

    def _is_known(self, optimizer: torch.optim.Optimizer) -> bool:
        earlier = self._earlier.get(id(optimizer))
        return earlier is not None and earlier() is optimizer

    def _require_short_lived(self, optimizer: torch.optim.Optimizer, attached: set[int]) -> None:
        ours = any(id(parameter) in attached for group in optimizer.param_groups for parameter in group["params"])
        if ours or self._is_known(optimizer):
            what = "has changed parameters that were attached" if ours else "is used in step after step"
            raise StateError(
                f"the optimizer {type(optimizer).__name__} {what}, but was not given to attach(): its state would be "
                "lost",
                hint="give attach() all optimizers and models from the beginning, in dicts if there are several",
            )

    def _require_nothing_else(self, held: Set[int]) -> None:
        if self._found(held):
            gc.collect()  # what only waits to be collected is in nobody's use
        for what, hint in self._found(held):
            raise StateError(f"{what}, but was not given to attach(): a resume would begin it anew", hint=hint)

    def _found(self, held: Set[int]) -> list[tuple[str, str]]:
        """What lives in this process and is in use, and neither attached nor held: what it is, and the remedy."""
        loader = self._parts.get("loader")
        places_known = loader is None or isinstance(loader, ResumableLoader)  # another may use iterators of its own
        found = []
        for each in gc.get_objects():
            kind = type(each)
            if id(each) in self._attached or id(each) in held:
                continue
            if issubclass(kind, LRScheduler) and id(vars(each).get("optimizer")) in self._attached:
                what = f"the scheduler {kind.__name__} belongs to an attached optimizer"
                found.append((what, "give it as scheduler="))
            elif issubclass(kind, torch.amp.GradScaler) and vars(each).get("_scale") is not None:
                found.append((f"the scaler {kind.__name__} is in use", "give it as scaler="))
            elif issubclass(kind, _BaseDataLoaderIter) and places_known and _in_between(each):
                what = f"an iterator of a DataLoader over {type(each._dataset).__name__} is in the middle of its data"
                found.append((what, "give its loader as loader= and iterate run.batches(); del one that is not needed"))
        return found

    def _held(self) -> dict[int, str]:
        """The identities of what attached objects have as attributes, or in lists and dicts of theirs, with paths."""
        held = dict[int, str]()
        for path, part in self._parts.items():
            for at, item in _held_by(part, path, _DEPTH):
                held.setdefault(id(item), at)
        return held


def _parts_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts_in(item, f"{path}.{key}")
    elif is_part(value):
        yield path, value


def _held_by(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        items = list(getattr(value, "__dict__", {}).items())
    for name, item in items if depth and len(items) <= _MOST_ITEMS else ():
        if not isinstance(item, _LEAVES):
            yield f"{path}.{name}", item
            yield from _held_by(item, f"{path}.{name}", depth - 1)


def _require_captured(optimizer: torch.optim.Optimizer, path: str, captured: list[torch.Tensor]) -> None:
    """Raises StateError when the attached object that holds it leaves its state out."""
    places = {tensor.data_ptr() for tensor in captured}
    for state in optimizer.state.values():
        for name, value in state.items() if isinstance(state, dict) else ():
            if not isinstance(value, torch.Tensor) or value.data_ptr() in places:
                continue
            if not any(value.shape == other.shape and torch.equal(value, other.to(value)) for other in captured):
                raise StateError(
                    f"{path}, a {type(optimizer).__name__}, has a state ({name}) that the state_dict() of what holds "
                    "it leaves out: it would be lost",
                    hint="attach it, too, or let the state_dict() of its holder have it",
                )


def _in_between(iterator: Any) -> bool:
    """Whether its next batch depends on how many it has given. Those with workers that stay begin anew each time."""
    if isinstance(iterator._dataset, KeyedDataset) or iterator._persistent_workers:
        return False
    try:
        return bool(0 < iterator._num_yielded < len(iterator))
    except TypeError:  # of data without a length
        return bool(iterator._num_yielded)
