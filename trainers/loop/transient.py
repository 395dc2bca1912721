"""Saves state that a training loop keeps between steps outside any state_dict: gradients, buffers and modes.

Gradients: a step may end in the middle of an accumulation, so the next step adds to `.grad`. Gradients that an
optimizer has used since they last changed (*spent*) are omitted from checkpoints if the program dropped them in several
steps (`zero_grad()` sets them to None) and never added to them. Most programs do this, and saving them would enlarge
the checkpoint by the size of the model without benefit. The assumption is checked all the time: if omitted gradients
are added to, the checkpoint is written again with them; after a resume, NaN replaces them, and using these ends the run
with an error before anything is committed.

Non-persistent buffers are saved if they differ from their values at `attach`, which is also where a new run starts.
Parameters of an optimizer that belong to no attached module are saved here, because its state_dict has no values, as
are the parameters of each of its groups (trainers.loop.groups). Tensors in `extra` may have gradients, too. Modes are:
which parameters require gradients (a program may unfreeze layers during training), and which modules are in `train()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
import xxhash
from torch.nn.parameter import is_lazy

from trainers.checkpoint.state import require_no_graph, tensor_bytes
from trainers.errors import StateError
from trainers.loop.groups import Groups

# Attributes of the gradients, so that they disappear with them.
_SPENT = "_tradewind_spent"  # the version of the gradient that an optimizer used
_LEFT = "_tradewind_left"  # the gradient was spent when the previous step ended
_STAND_IN = "_tradewind_stand_in"  # the version of a NaN that replaces an omitted gradient
_Form = tuple[torch.dtype, tuple[int, ...]]
_ENOUGH_STEPS = 8  # consistent steps after which spent gradients are omitted


class Transient:
    """Watches the attached parts of one run."""

    def __init__(self, parts: Mapping[str, Any], own: Mapping[str, torch.Tensor] = MappingProxyType({})) -> None:
        """`own`: tensors that the program attached directly, by name; their values are saved elsewhere."""
        self._modules = dict(_members(parts, "", torch.nn.Module))
        self._optimizers = dict(_members(parts, "", torch.optim.Optimizer))
        for optimizer in self._optimizers.values():
            optimizer.register_step_post_hook(self._stepped)
        self._at_attach = {key: _fingerprint(module, name) for key, module, name in self._buffers()}
        self._groups = Groups(self._optimizers, dict(self._of_modules()))
        known = {id(parameter) for _, parameter in (*self._of_modules(), *self._groups.loose.items())}
        self._own = {name: tensor for name, tensor in own.items() if id(tensor) not in known}
        self._built = self._structure()
        self._dropped: int | None = 0  # steps in which spent gradients were dropped; None: some were added to
        self._watching = False  # some gradients are marked as `_LEFT`
        self._used_again = False  # an optimizer has used some of them
        self._stand_ins = False
        self._misused = False

    def begin(self) -> None:
        """The loop begins: from now on, types and shapes must not change."""
        self._built = self._structure()

    def step_ended(self) -> bool:
        """Check the gradients at the end of a step; False if the newest checkpoint omits some that are in use.

        Raises StateError if omitted gradients were used, and for a new parameter that could not be restored.
        """
        if self._groups.changed():
            self._groups.names(dict(self._parameters()))
        if not self._watching and not self._stand_ins and self._is_known:
            return True
        gradients = list(self._gradients())
        if self._stand_ins:
            self._require_untouched(gradients)
        complete = True
        if self._watching:
            in_use = [gradient for _, gradient in gradients if not hasattr(gradient, _STAND_IN)]
            kept = self._used_again or any(hasattr(gradient, _LEFT) for gradient in in_use)
            complete = not (kept and self._leaves_out)
            self._dropped = None if kept or self._dropped is None else self._dropped + 1
            self._watching = self._used_again = False
        if not self._is_known:
            self._mark_left(gradient for _, gradient in gradients)
        return complete

    def parameters(self) -> Iterator[torch.Tensor]:
        """All parameters whose gradient a checkpoint may include."""
        return (parameter for _, parameter in self._parameters())

    def named_parameters(self) -> dict[str, torch.Tensor]:
        """The same parameters, by name."""
        return dict(self._parameters())

    def capture(self) -> dict[str, Any]:
        """The state to save now. Raises StateError if the model differs from the one that a resume would build."""
        self._require_the_same_model()
        gradients = list(self._gradients())
        spent = {name: gradient for name, gradient in gradients if self._may_be_left_out(gradient)}
        self._mark_left(spent.values())
        return {
            "gradients": {name: gradient for name, gradient in gradients if name not in spent},
            "spent": list(spent),
            "buffers": {key: owner._buffers.get(name) for key, owner, name in self._changed_buffers()},
            "dropped": self._dropped,
            "loose": self._groups.loose,
            "groups": self._groups.names(dict(self._parameters())),
            "frozen": [name for name, parameter in self._trained() if not parameter.requires_grad],
            "wanting": [name for name, tensor in self._own.items() if tensor.requires_grad],
            "evaluating": [path for path, module in self._submodules() if not module.training],
        }

    def restore_groups(self, state: Mapping[str, Any]) -> None:
        """Give the optimizers the groups of the checkpoint, before their states are loaded. Raises StateError."""
        self._groups.restore(state["groups"], dict(self._parameters()))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state. Raises StateError if the program's parameters or modules differ from those of the saving
        run.
        """
        parameters = dict(self._parameters())
        unknown = [name for name in (*state["gradients"], *state["spent"]) if name not in parameters]
        if unknown:
            raise StateError(f"the checkpoint has a gradient of {unknown[0]}, which does not exist here", hint=_SAME)
        for name, parameter in parameters.items():
            parameter.grad = None
            if name in state["gradients"]:
                saved = state["gradients"][name]
                if saved.shape != parameter.shape:
                    raise StateError(f"the gradient of {name} has a different shape in the checkpoint", hint=_SAME)
                parameter.grad = saved.to(parameter.device)
        loose = self._groups.loose
        if loose.keys() != state["loose"].keys():
            raise StateError("the optimizer's own parameters differ from those in the checkpoint", hint=_SAME)
        for name, value in state["loose"].items():
            if value.shape != loose[name].shape:
                raise StateError(f"{name} has a different shape in the checkpoint", hint=_SAME)
            with torch.no_grad():
                loose[name].copy_(value)
        for name in state["spent"]:
            stand_in = torch.full_like(parameters[name], float("nan"), requires_grad=False)
            setattr(stand_in, _STAND_IN, stand_in._version)
            parameters[name].grad = stand_in
        self._stand_ins = bool(state["spent"])
        self._dropped = state["dropped"]
        self._watching = self._used_again = self._misused = False
        for key, value in state["buffers"].items():
            self._restore_buffer(key, value)
        frozen, wanting, evaluating = set(state["frozen"]), set(state["wanting"]), set(state["evaluating"])
        for name, parameter in self._trained():
            parameter.requires_grad_(name not in frozen)
        for name, tensor in self._own.items():
            tensor.requires_grad_(name in wanting)
        for path, module in self._submodules():
            module.training = path not in evaluating

    # Gradients

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None:
                    setattr(gradient, _SPENT, gradient._version)
                    self._used_again |= hasattr(gradient, _LEFT)
                    self._misused |= self._stand_ins and hasattr(gradient, _STAND_IN)

    @property
    def _leaves_out(self) -> bool:
        return self._dropped is not None and self._dropped >= _ENOUGH_STEPS

    @property
    def _is_known(self) -> bool:
        """True after it is clear what the program does with spent gradients."""
        return self._dropped is None or self._leaves_out

    def _may_be_left_out(self, gradient: torch.Tensor) -> bool:
        if hasattr(gradient, _STAND_IN):
            return True
        return self._leaves_out and getattr(gradient, _SPENT, None) == gradient._version

    def _mark_left(self, gradients: Iterable[torch.Tensor]) -> None:
        for gradient in gradients:
            if getattr(gradient, _SPENT, None) == gradient._version:
                setattr(gradient, _LEFT, True)
                self._watching = True

    def _require_untouched(self, gradients: list[tuple[str, torch.Tensor]]) -> None:
        left = [(name, gradient) for name, gradient in gradients if hasattr(gradient, _STAND_IN)]
        touched = [name for name, gradient in left if getattr(gradient, _STAND_IN) != gradient._version]
        if touched or self._misused:
            which = ", ".join(touched[:3]) or "several"
            raise StateError(
                f"the program reuses gradients that its optimizer has used ({which}), which it did not do before "
                "the checkpoint that it resumed from: this cannot be resumed exactly",
                hint="call zero_grad() after each optimizer.step()",
            )
        self._stand_ins = bool(left)

    def _gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self._parameters():
            if parameter.grad is not None:
                yield name, parameter.grad

    # Parameters

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._trained()
        yield from self._own.items()

    def _trained(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._of_modules()
        yield from self._groups.loose.items()

    def _of_modules(self) -> Iterator[tuple[str, torch.Tensor]]:
        seen: set[int] = set()
        for path, module in self._modules.items():
            for name, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{path}.{name}", parameter

    def _require_the_same_model(self) -> None:
        """Raises StateError if a resume would build other parameters and buffers."""
        now = self._structure()
        for name in sorted(now.keys() ^ self._built.keys()):
            how = "was removed" if name in self._built else "was added"
            raise StateError(
                f"{name} {how} after attach(): a resume would build a different model",
                hint="build the whole model before attach()",
            )
        for name, before in self._built.items():
            if before is not None and now[name] != before:
                raise StateError(
                    f"{name} is now {_described(now[name])} but was {_described(before)} when the loop began, as a "
                    "resume would build it",
                    hint="change types before run.batches(); register what changes its shape with register_buffer(..., "
                    "persistent=False)",
                )
        for path, owner in self._submodules():
            for name, buffer in owner._buffers.items():
                require_no_graph(buffer, f"{path}.{name}")

    def _structure(self) -> dict[str, _Form | None]:
        """Type and shape of each entry in the modules' state_dicts; None while unknown (lazy modules)."""
        found: dict[str, torch.Tensor] = {}
        for path, module in self._modules.items():
            found |= {f"{path}.{name}": parameter for name, parameter in module.named_parameters()}
        for path, owner in self._submodules():
            for name, buffer in owner._buffers.items():
                if buffer is not None and name not in owner._non_persistent_buffers_set:
                    found[f"{path}.{name}"] = buffer
        return {name: None if is_lazy(value) else (value.dtype, tuple(value.shape)) for name, value in found.items()}

    # Buffers

    def _buffers(self) -> Iterator[tuple[str, torch.nn.Module, str]]:
        """Key, owner and name of every buffer that is not in a state_dict."""
        for path, owner in self._submodules():
            for name in sorted(owner._non_persistent_buffers_set):
                yield f"{path}.{name}", owner, name

    def _submodules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        for path, module in self._modules.items():
            for prefix, part in module.named_modules():
                yield f"{path}.{prefix}" if prefix else path, part

    def _changed_buffers(self) -> Iterator[tuple[str, torch.nn.Module, str]]:
        for key, owner, name in self._buffers():
            if key not in self._at_attach or self._at_attach[key] != _fingerprint(owner, name):
                yield key, owner, name

    def _restore_buffer(self, key: str, value: torch.Tensor | None) -> None:
        path = max((path for path in self._modules if key.startswith(f"{path}.")), key=len, default=None)
        prefix, _, name = key.removeprefix(f"{path}.").rpartition(".")
        try:
            owner = self._modules[path or ""].get_submodule(prefix)
        except (AttributeError, KeyError):
            raise StateError(f"the checkpoint has a buffer {key}, but there is no such module", hint=_SAME) from None
        present = owner._buffers.get(name)
        if present is not None and value is not None and _alike(present, value):
            with torch.no_grad():
                present.copy_(value)
            return
        if value is not None:
            like = present if present is not None else next(owner.parameters(), next(owner.buffers(), value))
            value = value.to(like.device)
        owner.register_buffer(name, value, persistent=False)


def _described(form: _Form | None) -> str:
    return "empty" if form is None else f"{form[0]} of shape {form[1]}"


_SAME = "build the same model as the run that saved it"


def _members(part: Any, path: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(part, kind):
        yield path, part
    elif isinstance(part, Mapping):
        for key, item in part.items():
            yield from _members(item, f"{path}.{key}" if path else str(key), kind)


def _alike(present: torch.Tensor, value: torch.Tensor) -> bool:
    return present.is_contiguous() and (present.shape, present.dtype) == (value.shape, value.dtype)


def _fingerprint(owner: torch.nn.Module, name: str) -> tuple[object, ...] | None:
    """Changes with any bit of the buffer; None if the buffer is None."""
    buffer = owner._buffers.get(name)
    if buffer is None:
        return None
    return buffer.dtype, tuple(buffer.shape), xxhash.xxh3_128_digest(tensor_bytes(buffer))
