"""Settings: each with its name, default, meaning and parser. docs/configuration.md is generated from this.

A setting is a field of the tree below. Its dotted path is its name in tradewind.toml; its environment variable is
TRADEWIND_ plus that path in capitals with underscores. Plain dataclasses, because every command loads them.
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

from orchestrator.config.aws import read_image, read_instance_types, read_regions
from orchestrator.config.owned_hosts import OwnedHosts, read_owned_hosts
from orchestrator.config.paths import why_no_path
from providers.traits import own_clock

CLOCK_FACTOR = 60.0  # a Ray node starts in 4 to 10 s here: minutes of market time, like a cloud machine
PRICED_CLOUDS = ("aws", "gcp", "azure")
MAX_TEMP_DIR_BYTES = 31  # a cluster's folder takes 7 bytes, Ray up to 69, and a unix socket's path has at most 107

Read = Callable[[object], object]
"""Parses a TOML value, or text from a flag or the environment. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting by its dotted `name`. If `default` is None, `default_text` says how it follows from other
    settings."""

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


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value.strip()
    raise ValueError("must be text and not empty")


def _path(value: object) -> Path:
    text = str(value) if isinstance(value, Path) else _text(value)
    if wrong := why_no_path(text):
        raise ValueError(wrong)
    return Path(text)


def _url(value: object) -> str:
    text = _text(value)
    if not re.match(r"(sqlite|postgresql)(\+\w+)?://", text):
        raise ValueError('must be a database URL, such as "postgresql://user@host/tradewind"')
    return text


def _root(value: object) -> Path | str:
    text = _text(value)
    if "://" not in text:
        return Path(text)
    if not re.fullmatch(r"s3://[^/?#]+(/[^?#]*)?", text):
        raise ValueError('must be a folder, or a bucket such as "s3://bucket/tradewind"')
    return text.rstrip("/")


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
        raise ValueError("must be a list of at least one name of lower-case letters and digits")
    if len(set(names)) < len(names):
        raise ValueError("has a duplicate")
    return names


def _clouds(value: object) -> tuple[str, ...]:
    items = [item for item in value.split(",") if item.strip()] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of clouds")
    names = tuple(dict.fromkeys(item.strip() for item in items))
    if unknown := [name for name in names if name not in PRICED_CLOUDS]:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(PRICED_CLOUDS)}")
    return names


@dataclass(frozen=True, slots=True)
class PriceSources:
    """Price sources by name, each with its options (docs/collectors.md), including `every_s`: seconds between polls.

    Shown and read from the environment as JSON; in a file, a table of tables.
    """

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    def below(self, base_dir: Path) -> PriceSources:
        """The same with relative paths of feeds (`at`) made absolute from `base_dir`."""
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
        raise ValueError(f'{name}: a feed needs a table [prices.sources."feed:NAME"] with `at`, a path or URL')
    every_s = options.get("every_s", 1)
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not every_s >= 1:
        raise ValueError(f"{name}: every_s must be a number of seconds, at least 1")
    try:
        json.dumps(dict(options), allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: options must be text, numbers, booleans, or lists or tables of these") from None


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

    seed: int = _setting(7, "Random seed for its prices, capacity and preemptions.", _whole(0), "11")
    clock_factor: float = _setting(
        None,
        "Market seconds per real second; 1 if a real cloud is enabled.",
        _number(above=0),
        "60",
        f"{CLOCK_FACTOR:.0f}; 1 with a real cloud",
    )
    hazard: bool = _setting(True, "Whether its spot machines are preempted now and then.", _yes_no, "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticProvider:
    """Machines that somebody owns."""

    hosts: OwnedHosts = _setting(  # noqa: RUF009 - it is dataclasses.field
        OwnedHosts(),
        "Machines that you own and reach through SSH, by name, each with its options (docs/owned-machines.md); JSON in "
        "the environment.",
        read_owned_hosts,
        '{ desk1 = { address = "desk1.lan", user = "ada", gpu = "RTX-4090", vcpus = 16, memory_gb = 64 } }',
        "none",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsProvider:
    """Machines of AWS (docs/aws.md)."""

    regions: tuple[str, ...] = _setting(
        (),
        "The regions in which machines may be rented.",
        read_regions,
        '["us-east-1", "eu-west-1"]',
        "none: required if aws is enabled",
    )
    instance_types: tuple[str, ...] = _setting(
        (),
        "The instance types that may be rented, with or without GPUs.",
        read_instance_types,
        '["g5.xlarge", "g6.xlarge"]',
        "none: required if aws is enabled",
    )
    image: str | None = _setting(
        None,
        "What machines start from: an AMI, or `ssm:` and the name of a parameter of AWS Systems Manager that has one.",
        read_image,
        '"ssm:/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04/latest/ami-id"',
        "none: required if aws is enabled",
    )
    disk_gb: int = _setting(100, "The size of a machine's disk in GiB.", _whole(1), "200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """Where machines come from."""

    enabled: tuple[str, ...] = _setting(("local",), "The providers that jobs may use.", _names, '["local"]')
    local: LocalProvider = field(default_factory=LocalProvider)
    static: StaticProvider = field(default_factory=StaticProvider)
    aws: AwsProvider = field(default_factory=AwsProvider)

    @property
    def clock_factor(self) -> float:
        """Market seconds per second of the wall clock."""
        return self.local.clock_factor if own_clock(self.enabled) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Which prices the control plane collects besides those of enabled providers, and for how long."""

    clouds: tuple[str, ...] = _setting(
        (),
        f"Clouds whose prices the control plane collects: {', '.join(PRICED_CLOUDS)} (docs/collectors.md).",
        _clouds,
        '["azure"]',
        "none",
    )
    sources: PriceSources = _setting(  # noqa: RUF009 - it is dataclasses.field
        PriceSources(),
        "More sources, such as feeds, and options of the sources of `clouds`; JSON in the environment.",
        _sources,
        '{ "feed:verda" = { at = "prices.csv" }, azure-prices = { regions = ["eastus"], every_s = 7200 } }',
        "none",
    )
    max_age_days: int = _setting(
        365,
        "`plan --anywhere` and `offers --for` ignore prices last confirmed more than this many days ago, and report "
        "how many.",
        _whole(1),
        "90",
    )
    keep_days: int = _setting(
        400,
        "Prices older than this many days are deleted from the store once they are in the monthly archive.",
        _whole(31),
        "90",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Machines on this host."""

    temp_dir: Path = _setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "The folder of the Ray clusters of machines on this host. Its path has at most "
        f"{MAX_TEMP_DIR_BYTES} bytes, because it holds sockets.",
        _path,
        '"/tmp/tw"',
        "`tw-` and a digest of state_dir, in the temporary folder",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When jobs are moved. Seconds and days are market time."""

    min_dwell_s: float = _setting(
        3600.0, "A run is not moved to a better price before it has trained this long.", _number(), "1800"
    )
    max_migrations_per_day: int = _setting(4, "The most planned moves of one job in 24 hours.", _whole(0), "2")
    decide_every_s: float = _setting(
        86_400.0,
        "How often to decide again, besides after each price change, loss or back-off.",
        _number(above=0),
        "3600",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that apply to all jobs, whatever their job files say."""

    max_usd_per_hour: float = _setting(
        100.0, "The highest total cost of all machines per hour, in US dollars.", _number(above=0), "20"
    )
    max_instances: int = _setting(16, "The most machines that may run at once.", _whole(0), "4")
    max_unattended_s: float = _setting(
        86_400.0,
        "A machine ends by itself if no control plane has renewed it for this many real seconds.",
        _number(least=60.0),
        "345600",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Where the control plane keeps jobs' secrets."""

    key_file: Path | None = _setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "Keep the values of secrets in state_dir, encrypted with the key in this file, so that a restarted control "
        "plane has them. The file is created if missing (0600), outside of state_dir. Needs `tradewind[secrets]`.",
        _path,
        '"~/.config/tradewind/secrets.key"',
        "none: only in the control plane's memory",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """How machines of other hosts reach `store_root`. They get credentials that are limited to their job."""

    role: str | None = _setting(
        None,
        "The role whose rights machines get, limited to their job (AWS: its ARN, for `sts:AssumeRole`).",
        _text,
        '"arn:aws:iam::123456789012:role/tradewind-machines"',
        "none: those of the control plane's own user (`sts:GetFederationToken`)",
    )
    share_credentials: bool = _setting(
        False,
        "Whether machines get the control plane's own credentials, for stores that issue no limited ones. Then every "
        "job's program can read and delete whatever the control plane can.",
        _yes_no,
        "true",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Stalled runs: a step or a save does not come, or the program does not start or end. Time spent restoring,
    quiesced and waiting does not count. A job file may set its own limit (train.stall_after)."""

    after_steps: float = _setting(
        50.0,
        "A run counts as stalled if a step or save takes this many times as long as usual, and at least `after_s`.",
        _number(above=0),
        "200",
    )
    after_s: float = _setting(
        300.0,
        "The minimum for that in seconds: longer than anything between two steps, such as an evaluation.",
        _number(above=0),
        "1800",
    )
    fail_after_s: float = _setting(
        3600.0,
        "A run that has stalled for this many seconds fails and is retried from its last checkpoint.",
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
        "Like `after_s`, for a program that has not started to train (imports, loading data) or does not exit after "
        "its last step. Programs without `train.steps` and `train.epochs` are not watched before they start.",
        _number(above=0),
        "3600",
    )
    outside_fail_after_s: float = _setting(
        14400.0,
        "Like `fail_after_s`, for these programs.",
        _number(above=0),
        "43200",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, and the origin of each: `origins["policy.min_dwell_s"]` is `tradewind.toml:3`,
    `env TRADEWIND_POLICY_MIN_DWELL_S`, `command line` or `default`.

    Paths are absolute. Created by `load_config`.
    """

    state_dir: Path = _setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "The folder for all data: store, checkpoints, runs, outputs.",
        _path,
        '"/data/tradewind"',
        "`tradewind` in the user's state folder (`~/.local/state` on Linux)",
    )
    store_url: str = _setting(
        None,
        "The URL of the database: SQLite or Postgres.",
        _url,
        '"postgresql://tw@db/tradewind"',
        "SQLite, `tradewind.db` in state_dir",
    )
    store_root: Path | str = _setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "Where orders for machines, their reports and checkpoints are kept: a folder, or a bucket (`s3://bucket/prefix`).",
        _root,
        '"s3://bucket/tradewind"',
        "state_dir",
    )
    lease_s: float = _setting(
        90.0,
        "A run without contact to the control plane for this long stops itself and may be replaced. So long "
        "may the store be out of reach.",
        _number(above=0),
        "30",
    )
    suspect_after_s: float = _setting(
        5.0, "A run without contact for this long is suspected to be lost.", _number(above=0), "10"
    )
    providers: Providers = field(default_factory=Providers)
    prices: Prices = field(default_factory=Prices)
    site: Site = field(default_factory=Site)
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    stalls: Stalls = field(default_factory=Stalls)
    secrets: Secrets = field(default_factory=Secrets)
    machines: Machines = field(default_factory=Machines)
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def settings_of(section: type[Any], prefix: str = "") -> Iterator[Setting]:
    """The settings of a section and its subsections, in order."""
    for item in dataclasses.fields(section):
        name = prefix + item.name
        if item.metadata:
            yield Setting(name=name, default=item.default, **item.metadata)
        elif inner := section_of(item):
            yield from settings_of(inner, f"{name}.")


def section_of(item: dataclasses.Field[Any]) -> type[Any] | None:
    """The subsection in a field of a section; None if the field is a setting."""
    factory = item.default_factory
    return factory if isinstance(factory, type) and dataclasses.is_dataclass(factory) else None


SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in settings_of(Config)})
