"""Layers: a job of a group combines the group's defaults, its own job file and its entry; later layers win.

Each value of the result keeps a reference to its layer, so that a mistake is reported in the right file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.errors import Problem
from orchestrator.jobfile.fields import SECTIONS
from orchestrator.jobfile.schema import JobFile
from orchestrator.jobfile.source.source_map import Finding, Loc, SourceMap, dotted


@dataclass(frozen=True, slots=True)
class Layer:
    """A mapping of job fields: `tree`, at `prefix` in the file `path`."""

    tree: dict[str, object]
    path: str
    prefix: Loc
    source_map: SourceMap
    lost: frozenset[Loc] = frozenset()  # places whose values could not be read; () is the whole layer
    shared: bool = False  # with other jobs, for which it is valid

    @property
    def folder(self) -> str:
        """The folder to which the paths in the file are relative."""
        return str(Path(self.path).parent.absolute())

    def problem(self, finding: Finding) -> Problem:
        """A finding about a place in `tree`, as a problem of the file."""
        placed = replace(finding, loc=(*self.prefix, *finding.loc))
        at = self.source_map.of(placed)
        return Problem(
            self.path, at.line, at.column, dotted(placed.loc), finding.message, finding.hint, finding.unsupported
        )


@dataclass(slots=True)
class Merged:
    """The combined fields of the layers, and the layer of each place (the last layer is the job's entry)."""

    layers: Sequence[Layer]
    tree: dict[str, object] = field(default_factory=dict)
    origin: dict[Loc, int] = field(default_factory=dict)
    lost: set[Loc] = field(default_factory=set)

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
        """The layer of the value at a place."""
        return self.layers[self.origin[loc]]

    def is_of_entry(self, loc: Loc) -> bool:
        """Whether the value at a place is from the job's entry."""
        return self.origin.get(loc) == len(self.layers) - 1

    def problem(self, finding: Finding) -> Problem:
        """The finding at its place in the right file. Something that is missing is reported at the nearest section that
        exists."""
        index, entry, loc = self.index_of(finding.loc), len(self.layers) - 1, self._nearest(finding.loc)
        if self.layers[index].shared and self.is_section(loc) and loc[0] in JobFile.model_fields:
            index = entry  # a shared section is valid for other jobs; this job has to complete it
        return self.layers[index].problem(finding)

    def index_of(self, loc: Loc) -> int:
        """The layer of the value at a place, or of the nearest section around it that exists; else the job's entry."""
        return self.origin.get(self._nearest(loc), len(self.layers) - 1)

    def _nearest(self, loc: Loc) -> Loc:
        while loc and loc not in self.origin:
            loc = loc[:-1]
        return loc

    def is_section(self, loc: Loc) -> bool:
        """Whether there is a mapping at a place, which may combine several layers."""
        value: object = self.tree
        for part in loc:
            value = value.get(part) if isinstance(value, dict) else None
        return isinstance(value, dict)


def merge(layers: Sequence[Layer]) -> Merged:
    """The fields of all layers. Mappings are merged; other values, also unreadable ones, replace earlier values. Empty
    keys are ignored."""
    merged = Merged(layers)
    for index, layer in enumerate(layers):
        for loc in layer.lost:
            _take_away(merged, loc)
        _lay(merged, merged.tree, layer.tree, (), index)
        merged.lost |= layer.lost
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
        _forget(merged, at)
        if not isinstance(value, dict):  # a mapping completes what could not be read
            merged.lost -= {each for each in merged.lost if each[: len(at)] == at}
        elif old is not None and at in SECTIONS:
            merged.lost.add(at)
        below[key] = _copied(merged, value, at, index)


def _take_away(merged: Merged, loc: Loc) -> None:
    _forget(merged, loc)
    if not loc:
        merged.tree.clear()
        return
    value: object = merged.tree
    for part in loc[:-1]:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value.pop(loc[-1], None)


def _forget(merged: Merged, loc: Loc) -> None:
    """Forget the layers of the values at a place and below it."""
    for gone in [each for each in merged.origin if each[: len(loc)] == loc]:
        del merged.origin[gone]


def _copied(merged: Merged, value: object, loc: Loc, index: int) -> object:
    merged.origin[loc] = index
    if isinstance(value, dict):
        return {key: _copied(merged, each, (*loc, key), index) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(merged, each, (*loc, at), index) for at, each in enumerate(value)]
    return value
