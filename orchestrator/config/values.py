"""Setting, and readers for common kinds of values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config.paths import why_no_path
from orchestrator.errors import did_you_mean, echoed
from trainers.errors import StoreNotFound
from trainers.objects.services import place_of

LAST_PORT = 65535
_PORT = re.compile(
    r"postgresql[^:]*://(?:[^:/]*(?::[^@]*)?@)?+(?:\[[^/?]+\]|[^/:?\[]+)?+:([^/?]*)"
)  # as SQLAlchemy reads it

Read = Callable[[object], object]
"""Parses a TOML value, or text from a flag or the environment. Raises ValueError."""


class BadSetting(ValueError):
    """An invalid value of a setting, with the remedy ("" if the message is enough). For any other ValueError of a
    reader, the remedy is the setting's example."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class FieldErrors(ValueError):
    """Mistakes in a setting that is a table: (the field below the setting, what is wrong, the remedy or "") of each."""

    def __init__(self, problems: Sequence[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {message}" for field, message, _ in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, with its dotted `name`. If `default` is None, `default_text` says how the default is derived from
    other settings."""

    name: str
    meaning: str
    default: object
    default_text: str
    example: str
    read: Read

    @property
    def variable(self) -> str:
        """The name of the environment variable that sets it."""
        return "TRADEWIND_" + self.name.upper().replace(".", "_")

    @property
    def example_text(self) -> str:
        """The example as written in a flag or the environment: without quotes, list items separated by commas."""
        import tomllib  # needed only for an error

        value = tomllib.loads(f"example = {self.example}")["example"]
        if isinstance(value, dict):
            return json.dumps(value)
        return ",".join(value) if isinstance(value, list) else self.example.strip('"')


def typed(read: Read, value: object) -> object:
    """The result of `read` for a value of TOML or JSON, where only text is quoted, not numbers, true and false."""
    found = read(value)
    if isinstance(value, str) and isinstance(found, int | float):
        shown = str(found).lower() if isinstance(found, bool) else value.strip()
        raise BadSetting(f"must be {shown}, without quotes")
    return found


def text(value: object) -> str:
    """Text that is not empty."""
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value.strip()
    raise ValueError("must be text and not empty")


def path(value: object) -> Path:
    """A path."""
    given = str(value) if isinstance(value, Path) else text(value)
    if wrong := why_no_path(given):
        raise ValueError(wrong)
    return Path(given)


def url(value: object) -> str:
    """The URL of a database."""
    given = text(value)
    if not re.match(r"(sqlite|postgresql)(\+\w+)?://", given):
        raise BadSetting('must be a database URL, such as "postgresql://user@host/tradewind"')
    named = _PORT.match(given)
    if named and not (re.fullmatch(r"\d{1,5}", named[1], re.ASCII) and 1 <= int(named[1]) <= LAST_PORT):
        raise ValueError(f"its port must be a whole number from 1 to {LAST_PORT}")
    return given


def root(value: object) -> Path | str:
    """A folder, or the URL of a bucket."""
    given = text(value)
    if "://" not in given:
        return Path(given)
    try:
        return place_of(given).url
    except StoreNotFound as error:
        raise BadSetting("must be a folder or the URL of a bucket", error.hint) from error


def yes_no(value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("must be true or false")


def names(value: object) -> tuple[str, ...]:
    """Names of providers."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of names")
    names = tuple(item.strip() for item in items)
    if not names or not all(re.fullmatch(r"[a-z][a-z0-9_-]*", name) for name in names):
        raise ValueError("must list at least one name of lower-case letters and digits")
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadSetting(f'lists "{twice[0]}" twice', "delete one")
    return names


def one_of(*words: str) -> Read:
    """A reader of one of these words."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be one of {', '.join(words)}")
        if value not in words:
            raise BadSetting(f"{echoed(value)} is not one of {', '.join(words)}", did_you_mean(value, words))
        return value

    return read


def whole(least: int, most: int | None = None) -> Read:
    """A reader of whole numbers from `least` to `most` (None: no upper limit)."""

    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", value, re.ASCII):
            value = int(value)
        largest = 2**63 - 1 if most is None else most
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= largest:
            too_large = isinstance(value, int) and value > largest
            allowed = f", at least {least}" if most is None and not too_large else f" from {least} to {largest}"
            raise ValueError(f"must be a whole number{allowed}")
        return value

    return read


def number(*, above: float | None = None, least: float = 0.0) -> Read:
    """A reader of numbers."""

    def read(value: object) -> float:
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        wrong = not math.isfinite(number) or isinstance(value, bool) or number < least
        if wrong or (above is not None and number <= above):
            raise ValueError(
                f"must be a number, {f'more than {above:g}' if above is not None else f'at least {least:g}'}"
            )
        return number

    return read


def setting(default: object, meaning: str, read: Read, example: str, default_text: str = "") -> Any:
    """A field that is a setting."""
    about = {"meaning": meaning, "read": read, "example": example, "default_text": default_text}
    return field(default=default, metadata=about)
