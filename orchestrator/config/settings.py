"""Every setting: its name, default, meaning and how it is read. docs/configuration.md is made of it.

A setting is a field of the tree below; its dotted path is its name in tradewind.toml, and TRADEWIND_ + that path in
capitals with underscores its environment variable. Plain dataclasses, because each command loads them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from providers.traits import own_clock

CLOCK_FACTOR = 60.0  # a Ray node is up in 4 to 10 s here: minutes of its market, as a machine of a cloud takes
PRICED_CLOUDS = ("aws", "gcp", "azure")
MAX_TEMP_DIR_BYTES = 38  # Ray's sockets add up to 69 bytes, and the path of a unix socket has at most 107

Read = Callable[[object], object]
"""A value of TOML, or text from a flag or the environment -> the setting's value. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting by its dotted `name`. `default` is None where it follows from others: `default_text` says how."""

    name: str
    meaning: str
    default: object
    default_text: str
    example: str
    read: Read

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "TRADEWIND_" + self.name.upper().replace(".", "_")


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value.strip()
    raise ValueError("must be text, and not empty")


def _path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_text(value))


def _url(value: object) -> str:
    text = _text(value)
    if not re.match(r"(sqlite|postgresql)(\+\w+)?://", text):
        raise ValueError('must be the URL of a store, such as "postgresql://user@host/tradewind"')
    return text


def _yes_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("must be true or false")


def _names(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of names")
    names = tuple(item.strip() for item in items)
    if not names or not all(re.fullmatch(r"[a-z][a-z0-9_-]*", name) for name in names):
        raise ValueError("must be a list of names, at least one, of small letters and digits")
    if len(set(names)) < len(names):
        raise ValueError("names the same thing twice")
    return names


def _clouds(value: object) -> tuple[str, ...]:
    items = [item for item in value.split(",") if item.strip()] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of clouds")
    names = tuple(dict.fromkeys(item.strip() for item in items))
    if unknown := [name for name in names if name not in PRICED_CLOUDS]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(PRICED_CLOUDS)}")
    return names


@dataclass(frozen=True, slots=True)
class PriceSources:
    """Sources of prices by name, each with its options (docs/collectors.md) and maybe `every_s`: seconds between polls.

    It is JSON when shown and in the environment, a table of tables in a file.
    """

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    def below(self, base_dir: Path) -> PriceSources:
        """With the relative paths of feeds (`at`) made absolute."""
        placed = {
            name: {
                key: os.path.abspath(base_dir / at) if key == "at" and _is_path(at) else at for key, at in of.items()
            }
            for name, of in self.options.items()
        }
        return PriceSources(placed)

    def __str__(self) -> str:
        return json.dumps({name: dict(options) for name, options in self.options.items()})


def _is_path(at: object) -> bool:
    return isinstance(at, str) and "://" not in at


def _sources(value: object) -> PriceSources:
    if isinstance(value, PriceSources):
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError('must be JSON such as {"aws-spot": {"regions": ["eu-west-1"]}}') from None
    if not isinstance(value, Mapping) or not all(isinstance(options, Mapping) for options in value.values()):
        raise ValueError("must be tables of options by source, such as [prices.sources.aws-spot]")
    for name, options in value.items():
        _check_source(name, options)
    return PriceSources(value)


def _check_source(name: str, options: Mapping[str, Any]) -> None:
    from providers.collect.sources import source_kind
    from providers.errors import NotFoundError

    try:
        source_kind(name)
    except NotFoundError as error:
        raise ValueError(f"{error}; {error.hint}") from None
    if name.partition(":")[0] == "feed" and (not name.partition(":")[2] or not isinstance(options.get("at"), str)):
        raise ValueError(f'{name}: a feed is [prices.sources."feed:NAME"] with `at`, a path or URL')
    every_s = options.get("every_s", 1)
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not every_s >= 1:
        raise ValueError(f"{name}: every_s must be a number of seconds, at least 1")
    try:
        json.dumps(dict(options), allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: options are text, numbers, yes or no, and lists or tables of those") from None


def _whole(least: int) -> Read:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", value, re.ASCII):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
            raise ValueError(f"must be a whole number, at least {least}")
        return value

    return read


def _number(*, above: float | None = None, least: float = 0.0) -> Read:
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


def _setting(default: object, meaning: str, read: Read, example: str, default_text: str = "") -> Any:
    about = {"meaning": meaning, "read": read, "example": example, "default_text": default_text}
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProvider:
    """The simulated market on this machine."""

    seed: int = _setting(7, "Seed of its prices, capacity and preemptions.", _whole(0), "11")
    clock_factor: float = _setting(
        None,
        "Market seconds that pass in one second; 1 as soon as a real cloud is enabled.",
        _number(above=0),
        "60",
        f"{CLOCK_FACTOR:.0f}; 1 beside a real cloud",
    )
    hazard: bool = _setting(True, "Whether its spot instances are taken back now and then.", _yes_no, "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """Where machines come from."""

    enabled: tuple[str, ...] = _setting(("local",), "The providers that may be used.", _names, '["local"]')
    local: LocalProvider = field(default_factory=LocalProvider)

    @property
    def clock_factor(self) -> float:
        """Market seconds per second of the wall clock."""
        return self.local.clock_factor if own_clock(self.enabled) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the control plane collects besides the enabled providers' own prices, and how long it keeps prices."""

    clouds: tuple[str, ...] = _setting(
        (),
        f"Clouds whose prices the control plane collects, of {', '.join(PRICED_CLOUDS)} (docs/collectors.md).",
        _clouds,
        '["azure"]',
        "none",
    )
    sources: PriceSources = _setting(  # noqa: RUF009 - it is dataclasses.field
        PriceSources(),
        "Further sources, such as feeds, and options of those of `clouds`; in the environment as JSON.",
        _sources,
        '{ "feed:verda" = { at = "prices.csv" }, azure-prices = { regions = ["eastus"], every_s = 7200 } }',
        "none",
    )
    max_age_days: int = _setting(
        365,
        "`plan --anywhere` and `offers --for` leave out prices last confirmed more than this many days ago, and say "
        "how many.",
        _whole(1),
        "90",
    )
    keep_days: int = _setting(
        400, "Prices older than so many days leave the store, once they are in the monthly archive.", _whole(31), "90"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """This machine as a site: one Ray cluster."""

    temp_dir: Path = _setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        f"Folder of Ray's session; at most {MAX_TEMP_DIR_BYTES} bytes long, because sockets lie below it.",
        _path,
        '"/tmp/tw"',
        "`tw-` and a digest of state_dir, in the folder for temporary files",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When jobs are moved. Seconds and days are those of the market."""

    min_dwell_s: float = _setting(
        3600.0, "A run is not moved for a better price before it has trained so long.", _number(), "1800"
    )
    max_migrations_per_day: int = _setting(4, "At most so many planned moves of one job in 24 hours.", _whole(0), "2")
    decide_every_s: float = _setting(
        86_400.0, "Decide anew so often, besides after each price event or loss.", _number(above=0), "3600"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings that nothing passes, whatever a job file says."""

    max_usd_per_hour: float = _setting(
        100.0, "The most that all instances together may cost in an hour, in US dollars.", _number(above=0), "20"
    )
    max_instances: int = _setting(16, "The most instances that may be up at once.", _whole(0), "4")
    max_unattended_s: float = _setting(
        86_400.0,
        "An instance that no control plane has asked to stay for so many seconds of the wall clock ends by itself.",
        _number(least=60.0),
        "345600",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """How long the control plane keeps what jobs were given as secrets."""

    key_file: Path | None = _setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "Keep the values of secrets in state_dir, encrypted with the key in this file (made if missing, 0600, outside "
        "of state_dir), so that a restarted control plane has them. Needs `tradewind[secrets]`.",
        _path,
        '"~/.config/tradewind/secrets.key"',
        "none: in the control plane's memory alone",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Runs that stand still: a step, a save, the beginning or the end of the program does not come. Time that goes into
    restoring, quiesced and waiting does not count. A job file may set a limit of its own (train.stall_after)."""

    after_steps: float = _setting(
        50.0,
        "A run counts as stalled when a step (a save) takes this many times as long as usual, and at least `after_s`.",
        _number(above=0),
        "200",
    )
    after_s: float = _setting(
        300.0,
        "The least seconds for that: longer than what may lie between two steps, such as an evaluation.",
        _number(above=0),
        "1800",
    )
    fail_after_s: float = _setting(
        3600.0,
        "A run that has stood still for so many seconds has failed; it is tried again from its last checkpoint.",
        _number(above=0),
        "14400",
    )
    setup_fail_after_s: float = _setting(
        1800.0,
        "A set-up (`train.setup`, `train.requirements`) that takes so many seconds has failed.",
        _number(above=0),
        "3600",
    )
    outside_after_s: float = _setting(
        900.0,
        "The same as `after_s` for a program that has not begun to train (it imports, loads data), or does not end "
        "after its last step. Programs without `train.steps` and `train.epochs` are not watched before they begin.",
        _number(above=0),
        "3600",
    )
    outside_fail_after_s: float = _setting(
        14400.0,
        "The same as `fail_after_s`, for these.",
        _number(above=0),
        "43200",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, and where each comes from: `origins["policy.min_dwell_s"]` is `tradewind.toml:3`,
    `env TRADEWIND_POLICY_MIN_DWELL_S`, `command line` or `default`.

    Paths are absolute. Made by `load_config`.
    """

    state_dir: Path = _setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "The folder with everything Tradewind remembers: store, checkpoints, runs, outputs.",
        _path,
        '"/data/tradewind"',
        "`tradewind` in the user's folder for state (`~/.local/state` on Linux)",
    )
    store_url: str = _setting(
        None,
        "The database, as a URL: SQLite or Postgres.",
        _url,
        '"postgresql://tw@db/tradewind"',
        "SQLite, `tradewind.db` in state_dir",
    )
    lease_s: float = _setting(
        60.0,
        "A run that hears nothing from the control plane for so long stops itself, and may be replaced.",
        _number(above=0),
        "30",
    )
    suspect_after_s: float = _setting(
        5.0, "A run that is silent for so long is suspected to be lost.", _number(above=0), "10"
    )
    providers: Providers = field(default_factory=Providers)
    prices: Prices = field(default_factory=Prices)
    site: Site = field(default_factory=Site)
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    stalls: Stalls = field(default_factory=Stalls)
    secrets: Secrets = field(default_factory=Secrets)
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def settings_of(section: type[Any], prefix: str = "") -> Iterator[Setting]:
    """The settings of a section and of the sections in it, in order."""
    for item in dataclasses.fields(section):
        name = prefix + item.name
        if item.metadata:
            yield Setting(name=name, default=item.default, **item.metadata)
        elif inner := section_of(item):
            yield from settings_of(inner, f"{name}.")


def section_of(item: dataclasses.Field[Any]) -> type[Any] | None:
    """The section that a field of a section holds; None for a setting."""
    factory = item.default_factory
    return factory if isinstance(factory, type) and dataclasses.is_dataclass(factory) else None


SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in settings_of(Config)})
