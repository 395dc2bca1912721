"""YAML text -> plain values, and the position of each in the text.

Plain scalars are read by the rules of YAML 1.2: `3e-4` is a number, `no` and `12:30` are text. Duplicate keys,
tags, merge keys and recursive aliases are findings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

import yaml

from orchestrator.jobfile.units import quoted

Loc = tuple[str | int, ...]
"""Path of a value from the root: ("data", 0, "size")."""

MERGE_KEY = "<<"
_MAX_VALUES = 20_000  # aliases can expand a short file to billions
_MAX_DEPTH = 40

_INT = re.compile(r"[-+]?[0-9]+", re.ASCII)
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: dict[str, object] = {"": None, "~": None}
for _word, _meaning in (("null", None), ("true", True), ("false", False)):
    _WORDS |= {_word: _meaning, _word.capitalize(): _meaning, _word.upper(): _meaning}
for _sign in ("", "+", "-"):
    _WORDS |= {f"{_sign}.{inf}": float(f"{_sign}inf") for inf in ("inf", "Inf", "INF")}
_WORDS |= {nan: float("nan") for nan in (".nan", ".NaN", ".NAN")}


@dataclass(frozen=True, slots=True)
class Mark:
    """1-based position; (0, 0) where there is no text."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake at a place of the tree: in the value at `loc`, or in its key."""

    loc: Loc
    message: str
    hint: str = ""
    at: Literal["key", "value"] = "value"
    mark: Mark | None = None  # if the place is not in the tree (a second key of the same name)
    unsupported: bool = False  # the field is valid, but this version does not support it
    lacks: tuple[Loc, ...] = ()  # the mistake is that none of these exists

    @property
    def field(self) -> str:
        """The dotted name of the field."""
        return dotted(self.loc)


@dataclass(slots=True)
class SourceMap:
    """Positions by path, and the text of each unquoted value. Empty for a tree that came from Python."""

    keys: dict[Loc, Mark] = field(default_factory=dict)
    values: dict[Loc, Mark] = field(default_factory=dict)
    texts: dict[Loc, str] = field(default_factory=dict)

    def of(self, finding: Finding) -> Mark:
        """Position of a finding, or of the nearest enclosing value in the text."""
        if finding.mark is not None:
            return finding.mark
        table, loc = (self.keys if finding.at == "key" else self.values), finding.loc
        while loc and loc not in table:
            loc = loc[:-1]
        return table.get(loc, Mark(0, 0))


def unread(findings: Iterable[Finding]) -> set[Loc]:
    """The places whose values could not be read; for a merge key, the mapping that contains it."""
    merged = {each.loc[:-1] for each in findings if each.mark is not None and each.loc[-1:] == (MERGE_KEY,)}
    return merged | {each.loc for each in findings if each.mark is None}


def lost_at(loc: Loc, lost: Collection[Loc]) -> bool:
    """Whether the value at `loc` may be in the file, but could not be read."""
    return any(loc[: len(place)] == place for place in lost)


def follows(finding: Finding, lost: Collection[Loc]) -> bool:
    """Whether a finding may be only a consequence of values that could not be read, at the places `lost`."""
    if finding.lacks:
        return any(lost_at(loc, lost) for loc in finding.lacks)
    end = len(finding.loc)
    return any(place[:end] == finding.loc and (place == finding.loc or finding.at == "value") for place in lost)


class YamlSyntaxError(Exception):
    """The text is not a YAML document. `mark` is where the mistake begins, `hint` the remedy (may be empty)."""

    def __init__(self, message: str, mark: Mark, hint: str = "") -> None:
        super().__init__(message)
        self.mark = mark
        self.hint = hint


def dotted(loc: Loc) -> str:
    """("data", 0, "size") -> `data[0].size`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if part.isprintable() and len(part) <= 60 else quoted(part[:60])
            text += f".{shown}" if text else shown
    return text


def read_yaml(text: str) -> tuple[object, SourceMap, list[Finding]]:
    """The value of one YAML document, the positions of its parts, and the mistakes in its structure.

    Raises YamlSyntaxError.
    """
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        from orchestrator.jobfile.source.syntax import syntax_error  # needed only for an error

        raise syntax_error(text, error) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise YamlSyntaxError(f"character U+{ord(text[error.position]):04X} is not allowed", mark) from None
    except RecursionError:
        raise YamlSyntaxError("it is nested too deeply", Mark(1, 1), "use fewer levels of lists and mappings") from None
    except (ValueError, OverflowError) as error:  # an escape such as "\UFFFFFFFF" is not a character
        raise YamlSyntaxError(str(error), Mark(1, 1)) from None
    reader = _Reader()
    try:
        value = reader.value(node, ()) if node is not None else None
    except _TooLarge as error:
        value, reader.findings = None, [error.finding]
    reader.source_map.keys[()] = reader.source_map.values[()] = Mark(1, 1)
    return value, reader.source_map, reader.findings


class _TooLarge(Exception):
    """The rest is not read, so that nothing can be said about the file but this."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _Reader:
    """Walks the node tree once; keeps positions and findings."""

    def __init__(self) -> None:
        self.source_map = SourceMap()
        self.findings: list[Finding] = []
        self._count = 0
        self._open: set[int] = set()  # nodes on the current path: reaching one again is a cycle

    def value(self, node: yaml.Node, loc: Loc) -> object:
        self.source_map.values[loc] = _mark(node.start_mark)
        self.source_map.keys.setdefault(loc, self.source_map.values[loc])
        self._count += 1
        if self._count > _MAX_VALUES or len(loc) > _MAX_DEPTH or id(node) in self._open:
            wrong = f"too large (more than {_MAX_VALUES:,} values) or nested too deeply (does an alias contain itself?)"
            raise _TooLarge(Finding(loc, wrong, "write fewer values, and write aliases out"))
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.rsplit(":", 1)[1] not in (
            "str",
            "seq",
            "map",
        ):
            self.findings.append(Finding(loc, "YAML tags are not supported", "write the plain value"))
            return None
        if isinstance(node, yaml.ScalarNode):
            if node.style is not None:
                return node.value
            self.source_map.texts[loc] = node.value
            return _scalar(node.value)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*loc, index)) for index, item in enumerate(node.value)]
            return self._mapping(node, loc)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.Node, loc: Loc) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            mark = _mark(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                hint = 'write "field: value"; text that begins with {, [ or ? needs quotes'
                self.findings.append(Finding(loc, "keys must be plain text", hint, mark=mark))
                continue
            key, path = key_node.value, (*loc, key_node.value)
            if key == MERGE_KEY and key_node.style is None:
                hint = "write the fields out"
                self.findings.append(Finding(path, "YAML merge keys are not supported", hint, mark=mark))
            elif key in result:
                first = self.source_map.keys[path].line
                hint = "keep one of the two"
                self.findings.append(Finding(path, f"is a duplicate; first set on line {first}", hint, mark=mark))
            else:
                self.source_map.keys[path] = mark
                result[key] = self.value(value_node, path)
        return result


def _mark(mark: yaml.Mark | None) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)


def _scalar(text: str) -> object:
    """A plain (unquoted) scalar by the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        if _INT.fullmatch(text):
            return int(text)
        if _OTHER_BASE.fullmatch(text):
            return int(text, 0)
    except ValueError:  # more digits than Python can convert
        return text
    return float(text) if _FLOAT.fullmatch(text) else text
