"""The parameter groups of optimizers: saved by parameter name, and rebuilt before an optimizer's state is loaded.

An optimizer's state_dict() has numbers instead of parameters, so it can be loaded only into an optimizer with equally
large groups. A program may add groups during training (`add_param_group`, when it unfreezes layers): a checkpoint names
the parameters of each group, and a resume restores the groups before it loads the state. Parameters of an optimizer
that belong to no attached module are *loose*: they are identified by their position in the optimizer at attach().
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainers.errors import StateError

Names = dict[str, list[list[str]]]
"""Per optimizer (by path): the parameter names of each group."""


class Groups:
    """The optimizers of one run, by path."""

    def __init__(self, optimizers: Mapping[str, torch.optim.Optimizer], of_modules: Mapping[str, torch.Tensor]) -> None:
        """`of_modules`: the parameters of the attached modules, by name."""
        self._optimizers = dict(optimizers)
        known = {id(parameter) for parameter in of_modules.values()}
        self.loose: dict[str, torch.Tensor] = {}
        for path, optimizer in self._optimizers.items():
            for place, group in enumerate(optimizer.param_groups):
                for number, parameter in enumerate(group["params"]):
                    if id(parameter) not in known:
                        known.add(id(parameter))
                        self.loose[f"{path}.{place}.{number}"] = parameter
        self._sizes = self._present_sizes()

    def changed(self) -> bool:
        """True if a group was added, removed or resized since the last call."""
        before, self._sizes = self._sizes, self._present_sizes()
        return before != self._sizes

    def names(self, parameters: Mapping[str, torch.Tensor]) -> Names:
        """The current groups. `parameters`: all named parameters. Raises StateError if a group has an unnamed one."""
        by_identity = {id(parameter): name for name, parameter in parameters.items()}
        found: Names = {}
        for path, optimizer in self._optimizers.items():
            found[path] = [
                [by_identity.get(id(parameter), "") for parameter in group["params"]]
                for group in optimizer.param_groups
            ]
            for place, group in enumerate(found[path]):
                if "" in group:
                    raise StateError(
                        f"parameter {group.index('')} of group {place} of {path} was added after attach() and is in no "
                        "attached module, or its module was replaced: a resume could not restore it",
                        hint="build the whole model before attach(), and change it in place",
                    )
        return found

    def restore(self, names: Names, parameters: Mapping[str, torch.Tensor]) -> None:
        """Give each optimizer the groups of the checkpoint; the options of new groups come with its state.

        Raises StateError if the program lacks an optimizer or a parameter.
        """
        if names.keys() != self._optimizers.keys():
            raise StateError(
                f"the checkpoint has the optimizers {', '.join(names) or 'none'}; the program attached "
                f"{', '.join(self._optimizers) or 'none'}",
                hint="attach what the saving run attached",
            )
        for path, groups in names.items():
            if missing := {name for group in groups for name in group} - parameters.keys():
                raise StateError(
                    f"the checkpoint's {path} has the parameter {min(missing)}, which does not exist here",
                    hint="build the same model as the run that saved it",
                )
            _regroup(self._optimizers[path], [[parameters[name] for name in group] for group in groups])
        self._sizes = self._present_sizes()

    def _present_sizes(self) -> list[int]:
        return [len(group["params"]) for each in self._optimizers.values() for group in each.param_groups]


def _regroup(optimizer: torch.optim.Optimizer, groups: list[list[torch.Tensor]]) -> None:
    present: list[Any] = optimizer.param_groups
    if [list(map(id, group["params"])) for group in present] == [list(map(id, group)) for group in groups]:
        return
    del present[len(groups) :]
    for group in present:
        group["params"].clear()
    for place, parameters in enumerate(groups):
        if place < len(present):
            present[place]["params"].extend(parameters)
        else:
            optimizer.add_param_group({"params": parameters})
