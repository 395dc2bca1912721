"""Detects training state that was not attached and that a resume would silently reset.

These are: an optimizer not given to attach() that changes attached parameters or lives longer than a step; a scheduler
of an attached optimizer that was not attached; a gradient scaler in use that was not attached; and a DataLoader
iterator that is read from step to step. Attached objects save the objects they hold, except modules: torch's
state_dict() of a module has only parameters and buffers. An optimizer held by another object must have its state saved
by that object.

The work of a program before its loop does not count, because every run repeats it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainers.checkpoint.state import is_part
from trainers.data.loader import KeyedDataset, ResumableLoader
from trainers.errors import StateError

_DEPTH = 4  # of nested attributes, lists and dicts
_MOST_ITEMS = 100  # of a list or dict; longer ones count as data
_LEAVES = (torch.Tensor, torch.nn.Module, str, bytes, int, float, type(None))  # contain none of these


class _Suspect(NamedTuple):
    ref: weakref.ref[Any]
    what: str
    hint: str


class UnattachedState:
    """Watches one run until close(). `parts`: everything that is attached, and the loader."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = {path: part for name, each in parts.items() for path, part in _parts_in(each, name)}
        self._attached = {id(part) for part in self._parts.values()}
        loader = self._parts.get("loader")
        self._knows_iterators = loader is None or isinstance(
            loader, ResumableLoader
        )  # other loaders may have their own
        self._used: dict[int, weakref.ref[torch.optim.Optimizer]] = {}  # unattached ones used in this step, by identity
        self._earlier: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._places: list[tuple[weakref.ref[Any], int]] = []  # of iterators and scalers
        self._scanned = False
        self._hook = register_optimizer_step_post_hook(lambda optimizer, *_: self._stepped(optimizer))

    def close(self) -> None:
        """Stop watching the optimizers of this process."""
        self._hook.remove()

    def begin(self) -> None:
        """The loop begins."""
        self._used.clear()
        self._note_places(_living(torch.amp.GradScaler, _BaseDataLoaderIter), self._held())

    def step_ended(
        self, parameters: Callable[[], Iterator[torch.Tensor]], captured: Callable[[], list[torch.Tensor]]
    ) -> None:
        """Check the objects used in this step. `parameters`: all attached parameters; `captured`: the saved tensors.

        Raises StateError for state that a resume would not find.
        """
        _require_gone(self._moved_on())
        if self._scanned and not self._used:
            return
        held = self._held()
        _require_gone(self._unattached_optimizers(held, parameters, captured))
        if not self._scanned:
            self._scanned = True
            living = _living(LRScheduler, torch.amp.GradScaler, _BaseDataLoaderIter)
            _require_gone(self._unattached_schedulers(living, held))
            self._note_places(living, held)  # including objects made in this step

    # Optimizers

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) not in self._attached:
            self._used[id(optimizer)] = weakref.ref(optimizer)

    def _unattached_optimizers(
        self,
        held: Mapping[int, str],
        parameters: Callable[[], Iterator[torch.Tensor]],
        captured: Callable[[], list[torch.Tensor]],
    ) -> list[_Suspect]:
        """The optimizers used in this step that must be attached. Raises StateError if an attached object holds one but
        its state_dict() omits its state.
        """
        used = [optimizer for ref in self._used.values() if (optimizer := ref()) is not None]
        self._used.clear()
        suspects = []
        for optimizer in used:
            known = self._is_known(optimizer)
            if id(optimizer) in held:
                if not known:
                    _require_captured(optimizer, held[id(optimizer)], captured())
                continue
            attached = {id(parameter) for parameter in parameters()}
            ours = any(id(parameter) in attached for group in optimizer.param_groups for parameter in group["params"])
            if ours or known:
                did = "changed attached parameters" if ours else "is used in several steps"
                what = f"the optimizer {type(optimizer).__name__} {did}, but was not given to attach()"
                suspects.append(_Suspect(weakref.ref(optimizer), f"{what}: its state would be lost", _OPTIMIZERS))
        self._earlier = {key: ref for key, ref in self._earlier.items() if ref() is not None}
        self._earlier |= {id(optimizer): weakref.ref(optimizer) for optimizer in used}
        return suspects

    def _is_known(self, optimizer: torch.optim.Optimizer) -> bool:
        earlier = self._earlier.get(id(optimizer))
        return earlier is not None and earlier() is optimizer

    # Found by looking, because nothing announces their use

    def _unattached_schedulers(self, living: list[Any], held: Mapping[int, str]) -> list[_Suspect]:
        """Schedulers of attached optimizers, found before the loop uses one: many are stepped only at the end of an
        epoch.
        """
        suspects, known = [], self._attached | held.keys()
        for each in living:
            if isinstance(each, LRScheduler) and id(each) not in known and id(vars(each).get("optimizer")) in known:
                name = type(each).__name__
                what = f"the scheduler {name} belongs to an attached optimizer, but was not given to attach()"
                suspects.append(_Suspect(weakref.ref(each), f"{what}: {_RESTARTS}", "give it as scheduler="))
        return suspects

    def _note_places(self, living: list[Any], held: Mapping[int, str]) -> None:
        """Remember the positions of other loaders' iterators, and of other scalers. Iterators with persistent workers
        restart each time.
        """
        self._places = []
        for each in living:
            if isinstance(each, torch.amp.GradScaler):
                watched = id(each) not in self._attached and id(each) not in held
            else:
                watched = isinstance(each, _BaseDataLoaderIter) and self._knows_iterators
                watched = watched and not (isinstance(each._dataset, KeyedDataset) or each._persistent_workers)
            if watched:
                self._places.append((weakref.ref(each), _place(each)))

    def _moved_on(self) -> list[_Suspect]:
        """The scalers used in this step, and the iterators that advanced and are not at their end."""
        suspects = []
        for ref, place in self._places:
            each = ref()
            if each is None or _place(each) == place:
                continue
            if isinstance(each, torch.amp.GradScaler):
                what = f"the scaler {type(each).__name__} is in use, but was not given to attach()"
                suspects.append(_Suspect(ref, f"{what}: {_RESTARTS}", "give it as scaler="))
            elif _in_between(each):
                what = f"an iterator of a DataLoader over {type(each._dataset).__name__} is read from step to step"
                what += ", but its loader was not given to attach()"
                suspects.append(_Suspect(ref, f"{what}: {_RESTARTS}", _ITERATORS))
        return suspects

    def _held(self) -> dict[int, str]:
        """The ids and paths of objects that attached objects hold as attributes, or in their lists and dicts."""
        held = dict[int, str]()
        level = [(path, part) for path, part in self._parts.items() if _may_save_attributes(part)]
        for _ in range(_DEPTH):
            items = [item for path, value in level for item in _items_of(value, path)]
            level = [(path, item) for path, item in items if held.setdefault(id(item), path) == path]
        return held


_RESTARTS = "a resume would start it from the beginning"
_OPTIMIZERS = (
    "give attach() all optimizers and models from the beginning, in dicts if there are several; an optimizer for a "
    "single step must be gone when the step ends: create it inside a function, or del it"
)
_ITERATORS = (
    "give the loader as loader= and iterate run.batches(); if there are two, make the other one a "
    "trainers.ResumableLoader and put it into extra="
)


def _require_gone(suspects: list[_Suspect]) -> None:
    """Raises StateError for the first one that still exists. Objects that only wait for garbage collection are not
    in use.
    """
    if suspects:
        gc.collect()
    for ref, what, hint in suspects:
        if ref() is not None:
            raise StateError(what, hint=hint)


def _living(*kinds: type[Any]) -> list[Any]:
    """All objects of these classes. Scans every object in the process: 0.1 s per million."""
    wanted = set[type[Any]]()
    more = list(kinds)
    while more:
        wanted.update(more)
        more = [below for kind in more for below in type.__subclasses__(kind)]
    return [each for each in gc.get_objects() if type(each) in wanted]


def _parts_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts_in(item, f"{path}.{key}")
    elif is_part(value):
        yield path, value


def _may_save_attributes(part: Any) -> bool:
    kind = type(part)
    stock = torch.nn.Module
    return not isinstance(part, stock) or (kind.state_dict, kind.get_extra_state) != (
        stock.state_dict,
        stock.get_extra_state,
    )


def _items_of(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        items = list(getattr(value, "__dict__", {}).items())
    if len(items) > _MOST_ITEMS:
        return []
    return [(f"{path}.{name}", item) for name, item in items if not isinstance(item, _LEAVES)]


def _require_captured(optimizer: torch.optim.Optimizer, path: str, captured: list[torch.Tensor]) -> None:
    """Raises StateError if the attached object that holds this optimizer does not save its state."""
    places = {tensor.data_ptr() for tensor in captured}
    for state in optimizer.state.values():
        for name, value in state.items() if isinstance(state, dict) else ():
            if not isinstance(value, torch.Tensor) or value.data_ptr() in places:
                continue
            if not any(value.shape == other.shape and torch.equal(value, other.to(value)) for other in captured):
                raise StateError(
                    f"{path}, a {type(optimizer).__name__}, has state ({name}) that the state_dict() of its holder "
                    "omits: it would be lost",
                    hint="attach it as well, or include its state in the state_dict() of its holder",
                )


def _place(each: Any) -> int:
    """The number of batches that an iterator has returned; for a scaler, a count that changes with its use, read
    without its device.
    """
    if isinstance(each, torch.amp.GradScaler):
        scale = vars(each).get("_scale")
        return -1 if scale is None else int(scale._version)
    return int(each._num_yielded)


def _in_between(iterator: Any) -> bool:
    try:
        return bool(0 < iterator._num_yielded < len(iterator))
    except TypeError:  # data without a length
        return bool(iterator._num_yielded)
