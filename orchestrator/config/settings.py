"""Settings: each with its name, default, meaning and parser. docs/configuration.md is generated from this.

A setting is a field of the tree below. Its dotted path is its name in tradewind.toml; its environment variable is
TRADEWIND_ plus that path in capitals with underscores. Plain dataclasses, because every command loads them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from orchestrator.config.clouds import AwsProvider, AzureProvider, GcpProvider
from orchestrator.config.owned_hosts import OwnedHosts, read_owned_hosts
from orchestrator.config.projects import Projects, read_projects
from orchestrator.config.values import (
    LAST_PORT,
    BadSetting,
    FieldErrors,
    Setting,
    names,
    number,
    one_of,
    path,
    root,
    setting,
    text,
    url,
    whole,
    yes_no,
)
from orchestrator.errors import did_you_mean, echoed
from providers.traits import own_clock

CLOCK_FACTOR = 60.0  # a Ray node starts in 4 to 10 s here: minutes of market time, like a cloud machine
PRICED_CLOUDS = ("aws", "gcp", "azure")
MAX_TEMP_DIR_BYTES = 31  # a cluster's folder takes 7 bytes, Ray up to 69, and a unix socket's path has at most 107


def _clouds(value: object) -> tuple[str, ...]:
    items = [item for item in value.split(",") if item.strip()] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of clouds")
    names = tuple(dict.fromkeys(item.strip() for item in items))
    if unknown := [name for name in names if name not in PRICED_CLOUDS]:
        near = did_you_mean(unknown[0], PRICED_CLOUDS)
        raise BadSetting(f"{echoed(unknown[0])} is not one of {', '.join(PRICED_CLOUDS)}", near)
    return names


def _providers(value: object) -> tuple[str, ...]:
    given = names(value)
    with_settings = {item.name for item in dataclasses.fields(Providers) if section_of(item)}
    if set(given) <= with_settings:
        return given
    from providers.registry import provider_names  # 0.1 s with its imports

    known = provider_names()
    if unknown := [name for name in given if name not in known]:
        listed = f"installed: {', '.join(known)}"
        near = did_you_mean(unknown[0], known)
        raise BadSetting(f'there is no provider "{unknown[0]}"', f"{near} {listed}" if near else listed)
    return given


@dataclass(frozen=True, slots=True)
class PriceSources:
    """Price sources by name, each with its options (docs/collectors.md), including `every_s`: seconds between polls.

    JSON when shown and in the environment; in a file, a table of tables.
    """

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    def below(self, base_dir: Path) -> PriceSources:
        """A copy in which relative paths of feeds (`at`) are absolute, resolved from `base_dir`."""
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
            raise BadSetting('must be JSON such as {"aws-spot": {"regions": ["eu-west-1"]}}') from None
    if not isinstance(value, Mapping):
        raise BadSetting("must be tables of options by source", _TABLE_OF_SOURCE)
    problems: list[tuple[str, str, str]] = []
    for name, options in value.items():
        if isinstance(options, Mapping):
            problems += _wrong_source(str(name), options)
        else:
            problems.append((str(name), "must be a table of the source's options", _TABLE_OF_SOURCE))
    if problems:
        raise FieldErrors(problems)
    return PriceSources(value)


_TABLE_OF_SOURCE = 'write them below a name, such as [prices.sources.aws-spot] or [prices.sources."feed:verda"]'


def _wrong_source(name: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The field below the setting, what is wrong, and the remedy, of each mistake."""
    from providers.collect.sources import wrong_options
    from providers.errors import NotFoundError

    try:
        wrong = list(wrong_options(name, {key: each for key, each in options.items() if key != "every_s"}))
    except NotFoundError as error:
        yield name, str(error), error.hint
        return
    kind, _, label = name.partition(":")
    if kind == "feed" and not label:
        yield name, "has no name", 'write [prices.sources."feed:NAME"]'
    if kind == "feed" and "at" not in options:
        yield name, "at is missing", 'add the path or URL of the prices, such as at = "prices.csv"'
    every_s = options.get("every_s", 1)
    if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not 1 <= every_s < math.inf:
        yield f"{name}.every_s", "must be a number of seconds, at least 1", 'write it like "every_s = 900"'
    for option, message, remedy in wrong:
        yield f"{name}.{option}", message, remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProvider:
    """The simulated market on this machine."""

    seed: int = setting(7, "Random seed for its prices, capacity and preemptions.", whole(0), "11")
    clock_factor: float = setting(
        None,
        "Market seconds per real second; 1 if a real cloud is enabled.",
        number(above=0),
        "60",
        f"{CLOCK_FACTOR:.0f}; 1 with a real cloud",
    )
    hazard: bool = setting(True, "Whether its spot machines are preempted from time to time.", yes_no, "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticProvider:
    """Machines that you own."""

    hosts: OwnedHosts = setting(  # noqa: RUF009 - it is dataclasses.field
        OwnedHosts(),
        "Machines that you own and reach through SSH, by name, each with its options (docs/owned-machines.md); JSON in "
        "the environment.",
        read_owned_hosts,
        '{ desk1 = { address = "desk1.lan", user = "ada", gpu = "RTX-4090", vcpus = 16, memory_gb = 64 } }',
        "none",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """Where machines come from."""

    enabled: tuple[str, ...] = setting(("local",), "The providers that jobs may use.", _providers, '["local"]')
    local: LocalProvider = field(default_factory=LocalProvider)
    static: StaticProvider = field(default_factory=StaticProvider)
    aws: AwsProvider = field(default_factory=AwsProvider)
    gcp: GcpProvider = field(default_factory=GcpProvider)
    azure: AzureProvider = field(default_factory=AzureProvider)

    @property
    def clock_factor(self) -> float:
        """Market seconds per second of the wall clock."""
        return self.local.clock_factor if own_clock(self.enabled) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Which prices the control plane collects in addition to those of enabled providers, and how long it keeps them."""

    clouds: tuple[str, ...] = setting(
        (),
        f"Clouds whose prices the control plane collects: {', '.join(PRICED_CLOUDS)} (docs/collectors.md).",
        _clouds,
        '["azure"]',
        "none",
    )
    sources: PriceSources = setting(  # noqa: RUF009 - it is dataclasses.field
        PriceSources(),
        "More sources, such as feeds, and options of the sources of `clouds`; JSON in the environment.",
        _sources,
        '{ "feed:verda" = { at = "prices.csv" }, azure-prices = { regions = ["eastus"], every_s = 7200 } }',
        "none",
    )
    max_age_days: int = setting(
        365,
        "`plan --anywhere` and `offers --for` ignore prices last confirmed more than this many days ago, and report "
        "how many.",
        whole(1),
        "90",
    )
    keep_days: int = setting(
        400,
        "Prices older than this many days are deleted from the store once they are in the monthly archive.",
        whole(31),
        "90",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Machines on this host."""

    temp_dir: Path = setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "The folder of the Ray clusters of machines on this host. Its path has at most "
        f"{MAX_TEMP_DIR_BYTES} bytes, because it holds sockets.",
        path,
        '"/tmp/tw"',
        "`tw-` and a digest of state_dir, in the temporary folder",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When jobs are moved. Seconds and days are market time."""

    min_dwell_s: float = setting(
        3600.0, "A run must train for this long before it is moved to a better price.", number(), "1800"
    )
    max_migrations_per_day: int = setting(4, "The limit of planned moves of one job in 24 hours.", whole(0), "2")
    decide_every_s: float = setting(
        86_400.0,
        "Decisions are repeated at this interval, and after each price change, loss or back-off.",
        number(above=0),
        "3600",
    )
    time_sharing: Literal["none", "max-min-fairness", "finish-time-fairness"] = setting(
        "none",
        "How jobs take turns on machines that you own if there are more jobs than machines: `max-min-fairness` (equal "
        "shares) or `finish-time-fairness` (equal delays). With `none`, a job keeps its machine until it ends.",
        one_of("none", "max-min-fairness", "finish-time-fairness"),
        '"max-min-fairness"',
    )
    turn_s: float = setting(600.0, "The approximate length of a turn.", number(least=1.0), "1800")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that apply to all jobs, regardless of their job files."""

    max_usd_per_hour: float = setting(
        100.0, "The highest total cost of all machines per hour, in US dollars.", number(above=0), "20"
    )
    max_instances: int = setting(16, "The highest number of machines that may run at once.", whole(0), "4")
    max_unattended_s: float = setting(
        86_400.0,
        "A machine shuts itself down if no control plane has renewed it for this many real seconds, or earlier if a "
        "budget covers less.",
        number(least=60.0),
        "345600",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Where the control plane keeps jobs' secrets."""

    key_file: Path | None = setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "Keep the values of secrets in state_dir, encrypted with the key in this file, so that a restarted control "
        "plane has them. The file is created if missing (0600), outside of state_dir. Needs `tradewind[secrets]`.",
        path,
        '"~/.config/tradewind/secrets.key"',
        "none: only in the control plane's memory",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """The dashboard that the control plane serves."""

    port: int | None = setting(
        None,
        "The control plane serves the dashboard on this port of 127.0.0.1, read-only (docs/dashboard.md). Needs "
        "`tradewind[web]`.",
        whole(1, LAST_PORT),
        "8420",
        "none: only `tradewind dashboard` serves it",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """How machines on other hosts reach `store_root`. They get credentials that are limited to their job."""

    role: str | None = setting(
        None,
        "The role whose rights machines get, limited to their job (S3: its ARN, for `sts:AssumeRole`; Google Cloud "
        "Storage: the e-mail address of a service account).",
        text,
        '"arn:aws:iam::123456789012:role/tradewind-machines"',
        "none: the rights of the control plane's own user (`sts:GetFederationToken`)",
    )
    share_credentials: bool = setting(
        False,
        "Whether machines get the control plane's own credentials, for stores that cannot issue limited ones. Every "
        "job's program can then read and delete everything that the control plane can.",
        yes_no,
        "true",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Stalled runs: a step or a save takes too long, or the program does not start or end. Time spent restoring,
    quiesced or waiting does not count. A job file may set its own limit (train.stall_after)."""

    after_steps: float = setting(
        50.0,
        "A run counts as stalled if a step or save takes this many times as long as usual, and at least `after_s`.",
        number(above=0),
        "200",
    )
    after_s: float = setting(
        300.0,
        "The minimum in seconds. Set it above the longest pause between two steps, such as an evaluation.",
        number(above=0),
        "1800",
    )
    fail_after_s: float = setting(
        3600.0,
        "A run that has stalled for this many seconds fails and is retried from its last checkpoint.",
        number(above=0),
        "14400",
    )
    setup_fail_after_s: float = setting(
        1800.0,
        "A set-up (`train.setup`, `train.requirements`) fails if it takes this many seconds.",
        number(above=0),
        "3600",
    )
    outside_after_s: float = setting(
        900.0,
        "Like `after_s`, for a program that has not started to train (imports, loading data) or does not exit after "
        "its last step. Programs without `train.steps` and `train.epochs` are not watched before they start.",
        number(above=0),
        "3600",
    )
    outside_fail_after_s: float = setting(
        14400.0,
        "Like `fail_after_s`, for these programs.",
        number(above=0),
        "43200",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, and the origin of each: `origins["policy.min_dwell_s"]` is `tradewind.toml:3`,
    `env TRADEWIND_POLICY_MIN_DWELL_S`, `command line` or `default`.

    Paths are absolute. Created by `load_config`.
    """

    state_dir: Path = setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "The folder for all data: store, checkpoints, runs, outputs.",
        path,
        '"/data/tradewind"',
        "`tradewind` in the user's state folder (`~/.local/state` on Linux)",
    )
    store_url: str = setting(
        None,
        "The URL of the database: SQLite or Postgres.",
        url,
        '"postgresql://tw@db/tradewind"',
        "SQLite, `tradewind.db` in state_dir",
    )
    store_root: Path | str = setting(  # noqa: RUF009 - it is dataclasses.field
        None,
        "The place for orders to machines, their reports and checkpoints: a folder or a bucket "
        "(`s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`).",
        root,
        '"s3://bucket/tradewind"',
        "state_dir",
    )
    store_region: str | None = setting(
        None,
        "The region of the bucket in `store_root`, as its cloud names it. It sets the price of transfers between "
        "regions, and `tradewind up --cloud CLOUD` creates the bucket there.",
        text,
        '"europe-west4"',
        "S3: `AWS_REGION`; otherwise unknown, and assumed to be the region of each machine",
    )
    lease_s: float = setting(
        90.0,
        "A run without contact to the control plane for this long stops itself and may be replaced. The store may "
        "be out of reach for up to this long.",
        number(above=0),
        "30",
    )
    suspect_after_s: float = setting(
        5.0, "A run without contact for this long is suspected to be lost.", number(above=0), "10"
    )
    projects: Projects = setting(  # noqa: RUF009 - it is dataclasses.field
        Projects(),
        "The limits, weight and priority of each project: tables [projects.NAME] (docs/projects.md); JSON in the "
        "environment.",
        read_projects,
        "{ vision = { weight = 2, max_instances = 8, max_usd_per_hour = 12, budget = 400, priority = 1 } }",
        "none",
    )
    providers: Providers = field(default_factory=Providers)
    prices: Prices = field(default_factory=Prices)
    site: Site = field(default_factory=Site)
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    stalls: Stalls = field(default_factory=Stalls)
    secrets: Secrets = field(default_factory=Secrets)
    machines: Machines = field(default_factory=Machines)
    web: Web = field(default_factory=Web)
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
