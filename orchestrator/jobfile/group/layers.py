"""Layers: a job of a group is made of the group's defaults, its own job file and its entry; later ones win.

Each value of the result remembers the layer that it came from, so that a mistake is reported where it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import Problem
from orchestrator.jobfile.schema import JobFile
from orchestrator.jobfile.source.source_map import Finding, Loc, SourceMap, dotted


@dataclass(frozen=True, slots=True)
class Layer:
    """A mapping of job fields: `tree`, which stands at `prefix` in the file `path`."""

    tree: dict[str, object]
    path: str
    prefix: Loc
    source_map: SourceMap

    @property
    def folder(self) -> str:
        """To which the paths of its file are relative."""
        return str(Path(self.path).parent.absolute())

    def problem(self, finding: Finding) -> Problem:
        """A finding about a place in `tree`, in the words of its file."""
        placed = Finding((*self.prefix, *finding.loc), finding.message, finding.hint, finding.at, finding.mark)
        at = self.source_map.of(placed)
        return Problem(
            self.path, at.line, at.column, dotted(placed.loc), finding.message, finding.hint, finding.unsupported
        )


@dataclass(slots=True)
class Merged:
    """The layers' fields together, and which layer each place came from (the last one is the job's entry)."""

    layers: Sequence[Layer]
    tree: dict[str, object] = field(default_factory=dict)
    origin: dict[Loc, int] = field(default_factory=dict)

    @property
    def texts(self) -> dict[Loc, str]:
        """The unquoted values as written, by their place in the merged tree."""
        found = {}
        for loc, index in self.origin.items():
            layer = self.layers[index]
            text = layer.source_map.texts.get((*layer.prefix, *loc))
            if text is not None:
                found[loc] = text
        return found

    def layer_of(self, loc: Loc) -> Layer:
        """The layer that the value at a place came from."""
        return self.layers[self.origin[loc]]

    def problem(self, finding: Finding) -> Problem:
        """The finding at its place in the file that it was written in; something that is missing, at the nearest
        section that exists."""
        loc = finding.loc
        while loc and loc not in self.origin:
            loc = loc[:-1]
        index, entry = self.origin.get(loc, len(self.layers) - 1), len(self.layers) - 1
        if index == 0 and isinstance(self._at(loc), dict) and loc[0] in JobFile.model_fields:
            index = entry  # a section of the defaults is all right for other jobs; this one has to complete it
        return self.layers[index].problem(finding)

    def _at(self, loc: Loc) -> object:
        value: object = self.tree
        for part in loc:
            value = value[part] if isinstance(value, dict | list) else None  # type: ignore[index]
        return value


def merge(layers: Sequence[Layer]) -> Merged:
    """The fields of all layers: mappings are merged, anything else replaces what it meets. Empty keys are ignored."""
    merged = Merged(layers)
    for index, layer in enumerate(layers):
        _lay(merged, merged.tree, layer.tree, (), index)
    return merged


def _lay(merged: Merged, below: dict[str, object], above: dict[str, object], loc: Loc, index: int) -> None:
    for key, value in above.items():
        if value is None:
            continue
        at, old = (*loc, key), below.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged.origin[at] = index
            _lay(merged, old, value, at, index)
            continue
        for gone in [each for each in merged.origin if each[: len(at)] == at]:
            del merged.origin[gone]
        below[key] = _copied(merged, value, at, index)


def _copied(merged: Merged, value: object, loc: Loc, index: int) -> object:
    merged.origin[loc] = index
    if isinstance(value, dict):
        return {key: _copied(merged, each, (*loc, key), index) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(merged, each, (*loc, at), index) for at, each in enumerate(value)]
    return value
