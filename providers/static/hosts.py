"""The user's own machines, as tradewind.toml declares them: `[providers.static.hosts.NAME]`.

    address         the host name or IP address, as ssh takes it                                   (required)
    vcpus           CPU cores                                                                      (required)
    memory_gb       main memory in units of 10^9 bytes                                             (required)
    user, port      default: what ssh's own configuration says
    key_file        the private key; default: the ssh agent, or what ssh's own configuration says
    host_key        the host's public key, such as "ssh-ed25519 AAAA..."; default: `known_hosts`
    known_hosts     the file with the host's public key; default: ssh's own
    accept_new_host_key   true: trust the key that the host shows the first time
    ssh_config      a configuration file for ssh instead of ~/.ssh/config
    gpu, gpus       the kind and the number of its GPUs; default: none, and 1 if `gpu` is given
    price_per_hour  US dollars for the whole host; default 0
    slots           how many machines it runs at a time; each gets an equal share of the host; default 1
    region, zone    labels; default: the host's name, the region
    peer_address    the IP address at which other hosts reach it, for jobs on several machines; default: the one from
                    which it reaches the store
    disk_gb         free disk space that a launch needs besides LaunchSpec.disk_gb, in units of 10^9 bytes; default 5
    architecture    as `uname -m` says; default x86_64
    python          the program on the host; default python3
    folder          where machines live on the host; default ~/.tradewind

Hosts with the same region, zone, GPUs and CPU cores are one offer with several machines.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.hardware import GB, GPUS, gpus_counted, gpus_named
from providers.money import usd
from providers.offer import CapacityType, Offer

PROVIDER = "static"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:%-]*")  # no leading dash: ssh would read an option
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*")
_HOST_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}( .*)?")  # with a comment
_PATHS = ("key_file", "known_hosts", "ssh_config")
_MOST_SLOTS = 64

Check = Callable[[object], Any]
"""Returns the value of an option. Raises ValueError, without the name of the option."""


@dataclass(frozen=True, slots=True)
class Host:
    """One declared host. Paths are absolute or start with `~` (on this machine), except `folder` (on the host)."""

    name: str
    address: str
    vcpus: int
    memory_gb: float
    user: str | None = None
    port: int | None = None
    key_file: str | None = None
    host_key: str | None = None
    known_hosts: str | None = None
    accept_new_host_key: bool = False
    ssh_config: str | None = None
    gpu: str | None = None
    gpus: int = 0
    price_per_hour: float = 0.0
    slots: int = 1
    region: str = ""
    zone: str = ""
    disk_gb: float = 5.0
    architecture: str = "x86_64"
    python: str = "python3"
    folder: str = "~/.tradewind"
    peer_address: str | None = None

    @property
    def offer(self) -> Offer:
        """The offer of one of its slots."""
        kind = f"{self.gpu.lower()}.{self.gpus // self.slots}" if self.gpu else f"cpu.{self.vcpus // self.slots}"
        return Offer(
            PROVIDER,
            self.region,
            self.zone,
            kind,
            self.gpu,
            self.gpus // self.slots,
            self.vcpus // self.slots,
            int(self.memory_gb * GB) // self.slots,
            CapacityType.ON_DEMAND,
        )

    @property
    def slot_nano_usd_per_hour(self) -> int:
        """The price of one slot."""
        return usd(self.price_per_hour) // self.slots

    def gpus_of_slot(self, slot: int) -> str:
        """The numbers of the GPUs of a slot, separated by commas."""
        each = self.gpus // self.slots
        return ",".join(str(number) for number in range(slot * each, (slot + 1) * each))


class HostsError(ValueError):
    """Mistakes in declarations: (the field, such as `desk1.vcpus`, what is wrong, the remedy) of each. The field is
    empty if the mistake concerns all declarations."""

    def __init__(self, problems: Sequence[tuple[str, str, str]]) -> None:
        super().__init__(
            "; ".join(f"{field}: {message} ({remedy})".lstrip(": ") for field, message, remedy in problems)
        )
        self.problems = tuple(problems)


def read_hosts(tables: object) -> tuple[Host, ...]:
    """Check and convert the tables of `providers.static.hosts`. Raises HostsError with every mistake."""
    if not isinstance(tables, Mapping):
        raise HostsError([("", "must be a table for each host", _TABLE)])
    hosts: list[Host] = []
    problems: list[tuple[str, str, str]] = []
    for name, table in tables.items():
        try:
            hosts.append(_host(str(name), table))
        except HostsError as error:
            problems += error.problems
    problems += _unequal(hosts)
    if problems:
        raise HostsError(problems)
    return tuple(hosts)


def below(hosts: Iterable[Host], base_dir: Path) -> tuple[Host, ...]:
    """The same hosts with the paths of keys and configurations made absolute from `base_dir`."""

    def placed(host: Host) -> Host:
        given = {name: getattr(host, name) for name in _PATHS if getattr(host, name) is not None}
        return dataclasses.replace(
            host, **{name: os.path.abspath(base_dir / os.path.expanduser(path)) for name, path in given.items()}
        )

    return tuple(map(placed, hosts))


def as_tables(hosts: Iterable[Host]) -> dict[str, dict[str, Any]]:
    """The tables that `read_hosts` would read, without default values."""
    defaults = {item.name: item.default for item in dataclasses.fields(Host)}

    def table(host: Host) -> dict[str, Any]:
        values = {item.name: getattr(host, item.name) for item in dataclasses.fields(Host) if item.name != "name"}
        return {name: value for name, value in values.items() if value != defaults[name]}

    return {host.name: table(host) for host in hosts}


def _host(name: str, table: object) -> Host:
    """Raises HostsError."""
    if not isinstance(table, Mapping):
        raise HostsError([(name, "must be a table of the host's options", _TABLE)])
    problems: list[tuple[str, str, str]] = []

    def wrong(option: str, message: str, remedy: str) -> None:
        problems.append((f"{name}.{option}" if option else name, message, remedy))

    if not _NAME.fullmatch(name):
        wrong("", "is not a valid name of a host", "use lower-case letters, digits and dashes, at most 40")
    values: dict[str, Any] = {}
    misspelt: set[str] = set()
    for option, value in table.items():
        if option not in _OPTIONS:
            near = difflib.get_close_matches(option, _OPTIONS, n=1)
            misspelt.update(near)
            wrong(option, "unknown option", f'did you mean "{near[0]}"?' if near else f"one of {', '.join(_OPTIONS)}")
            continue
        check, example = _OPTIONS[option]
        try:
            values[option] = check(value)
        except ValueError as error:
            wrong(option, str(error), _like(option, example))
    for option in ("address", "vcpus", "memory_gb"):
        if option not in {*table, *misspelt}:
            wrong("", f"{option} is missing", f"add {option} = {_OPTIONS[option][1]}")
    if problems:
        raise HostsError(problems)
    if "gpu" in values:
        values.setdefault("gpus", 1)
    elif values.get("gpus"):
        wrong("gpus", "is set, but gpu is not", 'add the kind, such as gpu = "RTX-4090"')
    values.setdefault("region", name)
    values.setdefault("zone", values["region"])
    host = Host(name=name, **values)
    if host.gpu and (host.gpus == 0 or host.gpus % host.slots):
        shared = f"{host.gpus} GPUs cannot be shared equally by {host.slots} slots"
        wrong("slots", shared, "make gpus a multiple of slots")
    if host.vcpus < host.slots:
        wrong("slots", f"{host.vcpus} CPU cores are not enough for {host.slots} slots", f"set at most {host.vcpus}")
    if host.host_key and (host.known_hosts or host.accept_new_host_key):
        wrong("host_key", "excludes known_hosts and accept_new_host_key", "keep one of them")
    if problems:
        raise HostsError(problems)
    return host


def _like(option: str, example: str) -> str:
    """`write it like "vcpus = 16"`; without quotes around an example that has its own."""
    written = f"{option} = {example}"
    return f"write it like {written}" if '"' in written else f'write it like "{written}"'


def _unequal(hosts: Iterable[Host]) -> Iterator[tuple[str, str, str]]:
    """Hosts of one offer must have the same price and memory."""
    first: dict[str, Host] = {}
    for host in hosts:
        other = first.setdefault(host.offer.id, host)
        if other.offer != host.offer or other.slot_nano_usd_per_hour != host.slot_nano_usd_per_hour:
            message = f"is the same offer as {other.name} ({host.offer.id}), but differs in price or memory"
            yield host.name, message, "make them equal, or give one of them another region or zone"


def _text(pattern: re.Pattern[str] | None = None, say: str = "") -> Check:
    def check(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise ValueError("must be text and not empty")
        if pattern is not None and not pattern.fullmatch(value):
            raise ValueError(f"{value!r} is not {say}")
        return value

    return check


def _number(least: float, most: float) -> Check:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"must be a number from {least:g} to {most:,.0f}")
        return value

    return check


def _ip_address(value: object) -> str:
    given = _text()(value)
    try:
        return str(ipaddress.IPv4Address(given))
    except ipaddress.AddressValueError as error:
        raise ValueError(f"{given!r} is not an IPv4 address") from error


def _whole(least: int, most: int = 1 << 31) -> Check:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return check


def _yes_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _gpu(value: object) -> str:
    if isinstance(value, str) and (counted := gpus_counted(value)):
        raise ValueError(f"{value!r} has a number: write it as gpus = {counted[1]}")
    kinds = gpus_named(value) if isinstance(value, str) else ()
    real = [kind for kind in kinds if not GPUS[kind].simulated]
    if not real:
        raise ValueError(f"{value!r} is not a known GPU")
    if len(real) > 1:
        raise ValueError(f"{value!r} may mean {' or '.join(real)}: name one of them")
    return real[0]


_TABLE = "write its options below [providers.static.hosts.desk1]"
_LABEL = _text(_NAME, "a label of lower-case letters, digits and dashes")
_OPTIONS: Mapping[str, tuple[Check, str]] = {
    "address": (_text(_ADDRESS, "a host name or an IP address"), '"desk1.lan"'),
    "vcpus": (_whole(1), "16"),
    "memory_gb": (_number(0.1, 1e6), "64"),
    "user": (_text(_USER, "a user's name"), '"ada"'),
    "port": (_whole(1, 65535), "22"),
    "key_file": (_text(), '"~/.ssh/tradewind"'),
    "host_key": (_text(_HOST_KEY, "a public key"), '"ssh-ed25519 AAAA..."'),
    "known_hosts": (_text(), '"~/.ssh/known_hosts"'),
    "accept_new_host_key": (_yes_no, "true"),
    "ssh_config": (_text(), '"~/.ssh/config"'),
    "gpu": (_gpu, '"RTX-4090"'),
    "gpus": (_whole(0, 1024), "2"),
    "price_per_hour": (_number(0, 1e6), "0.12"),
    "slots": (_whole(1, _MOST_SLOTS), "2"),
    "region": (_LABEL, '"lab"'),
    "zone": (_LABEL, '"lab-a"'),
    "disk_gb": (_number(0, 1e6), "5"),
    "architecture": (_text(re.compile(r"[A-Za-z0-9_]+"), "the output of `uname -m`"), '"x86_64"'),
    "python": (_text(), '"python3"'),
    "peer_address": (_ip_address, '"10.0.0.5"'),
    "folder": (_text(re.compile(r"[~/].*"), "an absolute path, or one that starts with ~"), '"~/.tradewind"'),
}
"""How each option is read, and an example of its value."""
