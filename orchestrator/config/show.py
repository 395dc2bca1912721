"""Show: the settings in force, for `tradewind config show --origins`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from orchestrator.config.settings import SETTINGS, Config


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting as text, as written in a flag; empty if it is not set. Passwords in URLs are hidden."""

    key: str
    value: str
    origin: str


def shown_settings(config: Config) -> Sequence[ShownSetting]:
    """Every setting, in the order of the documentation."""
    return [ShownSetting(name, _shown(_value(config, name)), config.origins.get(name, "default")) for name in SETTINGS]


def _value(config: Config, name: str) -> object:
    return reduce(getattr, name.split("."), config)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return f"{value:g}"
    return re.sub(r"(://[^:/@]*):[^/@]*@", r"\1:***@", str(value))
