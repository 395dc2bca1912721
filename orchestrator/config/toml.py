"""TOML: reads tradewind.toml into settings by dotted name, each with its position.

tomllib reports no positions, so they are searched for in the text: exact for a `key = value` on its own line, otherwise
the line of the enclosing table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.paths import NoFileError, opened_file
from orchestrator.errors import Problem, SpecError

_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'\- ]+?)\s*=")
_TWICE = re.compile(r"Cannot (overwrite a value|declare .* twice)")
_TWICE_INLINE = re.compile(r"Duplicate inline table key '(.*)'")
_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file's tables, and the position of each key by its dotted name."""

    path: str
    tables: Mapping[str, Any]
    positions: Mapping[str, tuple[int, int]]

    def position(self, name: str) -> tuple[int, int]:
        """The 1-based line and column of a key, of the first key below it, or of the enclosing table."""
        for key, place in self.positions.items():
            if key.startswith(f"{name}."):
                return self.positions.get(name, place)
        while name:
            if name in self.positions:
                return self.positions[name]
            name = name.rpartition(".")[0]
        return 1, 1


def read_toml(path: Path, shown: str) -> TomlFile | None:
    """Read a file, called `shown` in messages; None if it does not exist. Raises SpecError."""
    try:
        with opened_file(path) as file:
            text = file.read().decode("utf-8-sig")  # some editors begin files with a byte order mark
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        hint = "replace it with a file" if isinstance(error, NoFileError) else ""
        raise SpecError([Problem(shown, 0, 0, "", f"cannot be read: {reason}", hint)]) from None
    import tomllib  # slow to import, and most commands find no file

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT.search(str(error))
        end = (text.count("\n") + 1, len(text) - text.rfind("\n"))
        line, column = (int(at[1]), int(at[2])) if at and at[1] else end
        message = _AT.sub("", str(error))
        found = _given_twice(text, line, shown) if _TWICE.match(message) else None
        if (key := _TWICE_INLINE.match(message)) is not None:
            found = Problem(shown, line, column, key[1], "is given twice in one inline table", "delete one of the two")
        raise SpecError([found or Problem(shown, line, column, "", f"not valid TOML: {message}")]) from None
    except RecursionError:
        hint = "use fewer levels of arrays and tables"
        raise SpecError([Problem(shown, 1, 1, "", "is nested too deeply", hint)]) from None
    return TomlFile(shown, tables, dict(_positions(text)))


def _given_twice(text: str, line: int, shown: str) -> Problem | None:
    """The problem if the last key up to this line, or a key of its table, was given before; else None."""
    given = [each for each in _positions(text) if each[1][0] <= line]
    if not given:
        return None
    *before, (name, (last, column)) = given
    is_table = _TABLE.fullmatch(text.splitlines()[last - 1]) is not None
    first = [at for each, (at, _) in before if each == name or (is_table and each.startswith(f"{name}."))]
    if not first:
        return None
    remedy = "join the two tables" if is_table else "delete one of the two"
    return Problem(shown, last, column, name, f"is given twice, first on line {first[0]}", remedy)


def _positions(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE.fullmatch(line):
            table = _plain_name(match[1]) + "."
            yield table[:-1], (number, match.start(1) + 1)
        elif match := _KEY.match(line):
            yield table + _plain_name(match[1]), (number, match.start(1) + 1)


def _plain_name(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
