"""Which paths the patterns of a .gitignore exclude, exactly as git reads them.

A pattern is matched against one path, not against the paths below it: a search does not enter an excluded folder. So
"!models" includes a folder again, but not the files in it that another pattern excludes. Rules: gitignore(5), wildmatch
in git's source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_ANY = None  # the segment `**`
_Segment = re.Pattern[str] | None
_CLASSES = {
    **{"alnum": "A-Za-z0-9", "alpha": "A-Za-z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9"},
    **{"graph": "!-~", "lower": "a-z", "print": " -~", "space": "\\s", "upper": "A-Z", "xdigit": "A-Fa-f0-9"},
    "punct": "!-/:-@\\[-`{-~",
}
_NOTHING = "(?!)"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line. `anchored`: the segments match the whole path; otherwise the only segment matches the name."""

    segments: tuple[_Segment, ...]
    anchored: bool
    excludes: bool
    folders_only: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Whether it matches this path, which has / between its parts."""
        if self.folders_only and not is_folder:
            return False
        parts = path.split("/")
        return _fits(self.segments, parts if self.anchored else parts[-1:])


def patterns(text: str) -> tuple[Pattern, ...]:
    """The patterns of a file, in its order."""
    return tuple(found for line in text.removeprefix("\ufeff").split("\n") if (found := _pattern(line)) is not None)


def is_ignored(rules: Iterable[Pattern], path: str, *, is_folder: bool) -> bool:
    """Whether the last pattern that matches this path excludes it."""
    return next((each.excludes for each in reversed([*rules]) if each.matches(path, is_folder=is_folder)), False)


def _pattern(line: str) -> Pattern | None:
    line = re.sub(r"(?<!\\)((?:\\\\)*) +$", r"\1", line.removesuffix("\r"))
    if line.startswith("#"):
        return None
    glob = line.removeprefix("!")
    inner = glob.removesuffix("/")
    if not inner:
        return None
    anchored = "/" in inner
    parts = inner.removeprefix("/").split("/") if anchored else [inner]
    segments = [_ANY if part == "**" and anchored else re.compile(_expression(part), re.DOTALL) for part in parts]
    once = [each for each, before in zip(segments, [re.compile(""), *segments], strict=False) if each or before]
    return Pattern(tuple(once), anchored, glob == line, inner != glob)


def _fits(segments: tuple[_Segment, ...], parts: list[str]) -> bool:
    if not segments or not parts:
        return not segments and not parts
    first, *rest = segments
    if first is not _ANY:
        return first.fullmatch(parts[0]) is not None and _fits(tuple(rest), parts[1:])
    return not rest or any(_fits(tuple(rest), parts[skipped:]) for skipped in range(len(parts)))


def _expression(glob: str) -> str:
    """A segment as a regular expression. The text after a star is searched once, from the left, so no pattern takes
    long."""
    pieces, at = [""], 0
    while at < len(glob):
        letter, at = glob[at], at + 1
        if letter == "*":
            pieces += [""] if pieces[-1] or len(pieces) == 1 else []
        elif letter == "?":
            pieces[-1] += "."
        elif letter == "[":
            found, at = _bracket(glob, at)
            pieces[-1] += found
        elif letter == "\\":
            pieces[-1] += re.escape(glob[at]) if at < len(glob) else _NOTHING
            at += 1
        else:
            pieces[-1] += re.escape(letter)
    first, *others = pieces
    if not others:
        return first
    return first + "".join(f"(?>.*?{each})" for each in others[:-1]) + f".*{others[-1]}"


def _bracket(glob: str, at: int) -> tuple[str, int]:
    """A bracket expression whose content begins at `at`, and its end. An expression without an end matches nothing."""
    negated = glob[at : at + 1] in ("!", "^") and bool(glob[at : at + 1])
    at += negated
    begin, found = at, ""
    while at < len(glob) and (glob[at] != "]" or at == begin):
        if named := re.match(r"\[:([a-z]+):\]", glob[at:]):
            found, at = found + _CLASSES.get(named[1], ""), at + named.end()
            continue
        low, at = _member(glob, at)
        high = low
        if glob[at : at + 1] == "-" and glob[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(glob, at + 1)
        if low <= high:
            found += f"{re.escape(low)}-{re.escape(high)}"
    if at >= len(glob):
        return _NOTHING, at
    return f"[{'^' if negated else ''}{found}]" if found else "." if negated else _NOTHING, at + 1


def _member(glob: str, at: int) -> tuple[str, int]:
    at += glob[at] == "\\" and at + 1 < len(glob)
    return glob[at], at + 1
