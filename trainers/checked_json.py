"""Checks the type, range, length and form of JSON that another process wrote before it is used.

A job can write anything into the files and sockets that report on it. Every function here raises MalformedMessage, or
ValueError in the checks of single values, and nothing else.
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
from trainers.errors import MalformedMessage

MOST_BYTES = 1 << 20  # of one document
LARGEST_COUNT = 2**53  # exact in every JSON reader and database
LONGEST_S = 1e12  # more than 30,000 years
LONGEST_TEXT = 20_000
LONGEST_SHOWN = 60  # characters of an invalid value
_PLAIN = re.compile(r"[!-~]{1,200}")

Check = Callable[[object], Any]
"""Returns the checked value. Raises ValueError that says what the value should be."""


def read(path: Path, of: str) -> dict[str, Any]:
    """The JSON object in a regular file; `of` names it in errors. Raises FileNotFoundError, MalformedMessage."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe must not block
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise MalformedMessage(f"{of} is not a regular file")
            return document(file.read(MOST_BYTES + 1), of)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise MalformedMessage(f"{of} cannot be read: {error.strerror}") from error


def document(raw: bytes, of: str) -> dict[str, Any]:
    """The JSON object in `raw`; `of` names it in errors. Raises MalformedMessage."""
    if len(raw) > MOST_BYTES:
        raise MalformedMessage(f"{of} is longer than {MOST_BYTES} bytes")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"{of} is not JSON: {str(error)[:200]}") from None
    if type(found) is not dict:
        raise MalformedMessage(f"{of} is not a JSON object")
    return found


def fitting(found: object, form: Mapping[str, Check], of: str) -> dict[str, Any]:
    """The fields of an object that `form` names, checked; other fields are ignored. Raises MalformedMessage."""
    if not isinstance(found, Mapping):
        raise MalformedMessage(f"{of} is not an object")
    fields = {}
    for name, check in form.items():
        if name in found:
            try:
                fields[name] = check(found[name])
            except ValueError as error:
                raise MalformedMessage(f"{of}: {name} is {_shown(found[name])}, not {error}") from None
    return fields


def count(value: object) -> int:
    """A whole number from 0 to LARGEST_COUNT."""
    if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
        raise ValueError(f"a whole number from 0 to {LARGEST_COUNT}")
    return value


def status(value: object) -> int:
    """A process's exit status, or minus the number of the signal that ended it."""
    if type(value) is not int or not -256 < value < 256:
        raise ValueError("an exit status")
    return value


def number(value: object) -> float:
    """A finite number, as a float."""
    if (type(value) is not float or not math.isfinite(value)) and (
        type(value) is not int or not -LARGEST_COUNT <= value <= LARGEST_COUNT
    ):
        raise ValueError("a finite number")
    return float(value)


def seconds(value: object) -> float:
    """A number of seconds from 0 to LONGEST_S."""
    found = number(value)
    if not 0 <= found <= LONGEST_S:
        raise ValueError("a number of seconds")
    return found


def yes_no(value: object) -> bool:
    """True or False."""
    if type(value) is not bool:
        raise ValueError("true or false")
    return value


def text(value: object) -> str:
    """Text of at most LONGEST_TEXT characters; of a longer text, the last complete lines.

    The last line of a traceback is the most useful one, and a partial line could contain part of a secret (see
    `_shown`).
    """
    if type(value) is not str:
        raise ValueError("text")
    if len(value) <= LONGEST_TEXT:
        return value
    return value[-LONGEST_TEXT:].partition("\n")[2] or f"(a line of more than {LONGEST_TEXT} characters)"


def plain(value: object) -> str:
    """At most 200 printable ASCII characters without spaces."""
    if type(value) is not str or _PLAIN.fullmatch(value) is None:
        raise ValueError("at most 200 plain characters without spaces")
    return value


def manifest(value: object) -> str:
    """The name of a checkpoint."""
    if type(value) is not str:
        raise ValueError("a checkpoint's name")
    try:
        return str(ManifestName.parse(value))
    except ValueError:
        raise ValueError("a checkpoint's name (generation-step-attempt)") from None


def one_of(*words: str) -> Check:
    """A check for one of these texts."""

    def check(value: object) -> str:
        if type(value) is not str or value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return value

    return check


def optional(check: Check) -> Check:
    """A check that also accepts None."""
    return lambda value: None if value is None else check(value)


def _shown(value: object) -> str:
    """The complete value if it is short, otherwise a description: a secret is not masked if only part of it is
    shown."""
    if isinstance(value, str):
        return repr(value) if len(value) <= LONGEST_SHOWN else f"a text of {len(value)} characters"
    if isinstance(value, int) and abs(value) >= 10**LONGEST_SHOWN:
        return f"a number of more than {LONGEST_SHOWN} digits"
    if isinstance(value, list | Mapping):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return (
        repr(value) if value is None or isinstance(value, bool | int | float) else f"of the type {type(value).__name__}"
    )
