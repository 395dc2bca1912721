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
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.hardware import GB, GPUS, gpus_named
from providers.money import usd
from providers.offer import CapacityType, Offer

PROVIDER = "static"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:%-]*")  # no leading dash: ssh would read an option
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*")
_HOST_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}( .*)?")  # with a comment
_PATHS = ("key_file", "known_hosts", "ssh_config")
_MOST_SLOTS = 64


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


def read_hosts(tables: object) -> tuple[Host, ...]:
    """Check and convert the tables of `providers.static.hosts`. Raises ValueError with the first problem."""
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise ValueError("must be a table for each host, such as [providers.static.hosts.desk1]")
    hosts = tuple(_host(str(name), table) for name, table in tables.items())
    _check_offers(hosts)
    return hosts


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


def _host(name: str, table: Mapping[str, Any]) -> Host:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name of a host: lower-case letters, digits and dashes, at most 40")
    known = {item.name for item in dataclasses.fields(Host)} - {"name"}
    if unknown := sorted(set(table) - known):
        raise ValueError(f"{name}: unknown option {unknown[0]!r}; the options are {', '.join(sorted(known))}")
    if missing := [option for option in ("address", "vcpus", "memory_gb") if option not in table]:
        raise ValueError(f"{name}: {missing[0]} is missing")
    values = {option: _CHECKS[option](f"{name}: {option}", value) for option, value in table.items()}
    if "gpu" in values:
        values.setdefault("gpus", 1)
    elif values.get("gpus"):
        raise ValueError(f'{name}: gpus is set, but gpu is not: add the kind, such as gpu = "RTX-4090"')
    values.setdefault("region", name)
    values.setdefault("zone", values["region"])
    host = Host(name=name, **values)
    if host.gpu and (host.gpus == 0 or host.gpus % host.slots):
        raise ValueError(f"{name}: {host.gpus} GPUs cannot be shared equally by {host.slots} slots")
    if host.vcpus < host.slots:
        raise ValueError(f"{name}: {host.vcpus} CPU cores are not enough for {host.slots} slots")
    if host.host_key and (host.known_hosts or host.accept_new_host_key):
        raise ValueError(f"{name}: host_key excludes known_hosts and accept_new_host_key")
    return host


def _check_offers(hosts: Iterable[Host]) -> None:
    """Hosts of one offer must have the same price and memory."""
    first: dict[str, Host] = {}
    for host in hosts:
        other = first.setdefault(host.offer.id, host)
        if other.offer != host.offer or other.slot_nano_usd_per_hour != host.slot_nano_usd_per_hour:
            raise ValueError(
                f"{other.name} and {host.name} are the same offer ({host.offer.id}), but differ in price or memory: "
                "make them equal, or give one of them another region or zone"
            )


def _text(pattern: re.Pattern[str] | None = None, say: str = "") -> Any:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise ValueError(f"{name} must be text and not empty")
        if pattern is not None and not pattern.fullmatch(value):
            raise ValueError(f"{name} is {value!r}, which is not {say}")
        return value

    return check


def _number(least: float, most: float) -> Any:
    def check(name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"{name} must be a number from {least:g} to {most:g}")
        return value

    return check


def _ip_address(name: str, value: object) -> str:
    try:
        return str(ipaddress.IPv4Address(_text()(name, value)))
    except ipaddress.AddressValueError as error:
        raise ValueError(f"{name} is {value!r}, which is not an IPv4 address") from error


def _whole(least: int, most: int = 1 << 31) -> Any:
    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}")
        return value

    return check


def _yes_no(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return value


def _gpu(name: str, value: object) -> str:
    kinds = gpus_named(value) if isinstance(value, str) else ()
    real = [kind for kind in kinds if not GPUS[kind].simulated]
    if not real:
        raise ValueError(f"{name} is {value!r}, which is not a known GPU, such as RTX-4090 or A100-80GB")
    if len(real) > 1:
        raise ValueError(f"{name} is {value!r}, which may mean {' or '.join(real)}: name one of them")
    return real[0]


_LABEL = _text(_NAME, "a label of lower-case letters, digits and dashes")
_CHECKS: Mapping[str, Any] = {
    "address": _text(_ADDRESS, "a host name or an IP address"),
    "vcpus": _whole(1),
    "memory_gb": _number(0.1, 1e6),
    "user": _text(_USER, "a user's name"),
    "port": _whole(1, 65535),
    "key_file": _text(),
    "host_key": _text(_HOST_KEY, 'a public key, such as "ssh-ed25519 AAAA..."'),
    "known_hosts": _text(),
    "accept_new_host_key": _yes_no,
    "ssh_config": _text(),
    "gpu": _gpu,
    "gpus": _whole(0, 1024),
    "price_per_hour": _number(0, 1e6),
    "slots": _whole(1, _MOST_SLOTS),
    "region": _LABEL,
    "zone": _LABEL,
    "disk_gb": _number(0, 1e6),
    "architecture": _text(re.compile(r"[A-Za-z0-9_]+"), "the output of `uname -m`, such as x86_64"),
    "python": _text(),
    "peer_address": _ip_address,
    "folder": _text(re.compile(r"[~/].*"), "an absolute path, or one that starts with ~"),
}
