"""Words: what another process wrote as JSON, checked for type, range, length and form before any of it is believed.

A job can write whatever it likes into the files and sockets that speak for it. Everything here raises MalformedWord and
nothing else.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainers.checkpoint.manifest import ManifestName
from trainers.errors import MalformedWord

MOST_BYTES = 1 << 20  # of one document
LARGEST_COUNT = 2**53  # every JSON reader and every database holds it exactly
LONGEST_S = 1e12  # more than 30,000 years
LONGEST_TEXT = 20_000
LONGEST_SHOWN = 60  # characters of what makes no sense
_PLAIN = re.compile(r"[!-~]{1,200}")

Check = Callable[[object], Any]
"""The value as it may be believed. Raises ValueError, which says what it should be."""


def read(path: Path, of: str) -> dict[str, Any]:
    """The JSON object in a plain file. Raises FileNotFoundError, MalformedWord."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not make us wait
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise MalformedWord(f"{of} is no plain file")
            return document(file.read(MOST_BYTES + 1), of)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise MalformedWord(f"{of} cannot be read: {error.strerror}") from error


def document(raw: bytes, of: str) -> dict[str, Any]:
    """A JSON object. Raises MalformedWord, which names what it is `of`."""
    if len(raw) > MOST_BYTES:
        raise MalformedWord(f"{of} is longer than {MOST_BYTES} bytes")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedWord(f"{of} is no JSON: {str(error)[:200]}") from None
    if type(found) is not dict:
        raise MalformedWord(f"{of} is no JSON object")
    return found


def fitting(found: object, form: Mapping[str, Check], of: str) -> dict[str, Any]:
    """The fields of an object that `form` knows, checked; others are left out. Raises MalformedWord."""
    if not isinstance(found, Mapping):
        raise MalformedWord(f"{of} is no object")
    fields = {}
    for name, check in form.items():
        if name in found:
            try:
                fields[name] = check(found[name])
            except ValueError as error:
                raise MalformedWord(f"{of}: {name} is {_shown(found[name])}, not {error}") from None
    return fields


def count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
        raise ValueError(f"a whole number from 0 to {LARGEST_COUNT}")
    return value


def status(value: object) -> int:
    if type(value) is not int or not -256 < value < 256:
        raise ValueError("an exit status")
    return value


def number(value: object) -> float:
    if (type(value) is not float or not math.isfinite(value)) and (
        type(value) is not int or not -LARGEST_COUNT <= value <= LARGEST_COUNT
    ):
        raise ValueError("a finite number")
    return float(value)


def seconds(value: object) -> float:
    found = number(value)
    if not 0 <= found <= LONGEST_S:
        raise ValueError("a number of seconds")
    return found


def yes_no(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("true or false")
    return value


def text(value: object) -> str:
    """The last whole lines of a longer one: of a traceback the last line tells most, and none is cut (see `_shown`)."""
    if type(value) is not str:
        raise ValueError("text")
    if len(value) <= LONGEST_TEXT:
        return value
    return value[-LONGEST_TEXT:].partition("\n")[2] or f"(a line of more than {LONGEST_TEXT} characters)"


def plain(value: object) -> str:
    if type(value) is not str or _PLAIN.fullmatch(value) is None:
        raise ValueError("at most 200 plain characters without spaces")
    return value


def manifest(value: object) -> str:
    if type(value) is not str:
        raise ValueError("a checkpoint's name")
    try:
        return str(ManifestName.parse(value))
    except ValueError:
        raise ValueError("a checkpoint's name (generation-step-attempt)") from None


def one_of(*words: str) -> Check:
    def check(value: object) -> str:
        if type(value) is not str or value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return value

    return check


def maybe(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _shown(value: object) -> str:
    """In whole or not at all: it may be somebody's secret, and of a part of one no mask knows what it is."""
    if isinstance(value, str):
        return repr(value) if len(value) <= LONGEST_SHOWN else f"a text of {len(value)} characters"
    if isinstance(value, int) and abs(value) >= 10**LONGEST_SHOWN:
        return f"a number of more than {LONGEST_SHOWN} digits"
    if isinstance(value, list | Mapping):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return (
        repr(value) if value is None or isinstance(value, bool | int | float) else f"of the type {type(value).__name__}"
    )
