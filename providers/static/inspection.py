"""Compares a host with its declaration."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from providers.errors import SetupError
from providers.hardware import GB, GPUS, gpus_named
from providers.static.hosts import Host

CLOCKS_AGREE_S = 5.0


def wants_gpus(host: Host) -> bool:
    """Whether `nvidia-smi` can confirm its GPUs."""
    return host.gpu is not None and not GPUS[host.gpu].generation.startswith("CDNA")


def check(host: Host, facts: Mapping[str, Any]) -> None:
    """Raises SetupError for the first difference between a declaration and the facts that a host reported."""
    section = f"[providers.static.hosts.{host.name}]"
    if not facts["bash"]:
        raise SetupError(f"{host.name} has no bash", hint="install bash there", scope="region")
    if facts["architecture"] != host.architecture:
        raise SetupError(
            f"{host.name} is a machine of architecture {facts['architecture']}, not {host.architecture}",
            hint=f"change architecture in {section} only if the packages that jobs need exist for it",
            scope="region",
        )
    if facts["free_bytes"] < host.disk_gb * GB:
        raise SetupError(
            f"{host.name} has {facts['free_bytes'] / GB:.1f} GB of free disk space in {host.folder}; "
            f"{host.disk_gb:g} GB are needed",
            hint=f"free some space there, or set folder or disk_gb in {section}",
            scope="region",
        )
    if wants_gpus(host):
        _check_gpus(host, facts["gpus"] or {"names": [], "why": "nvidia-smi was not run"}, section)


def described(host: Host, facts: Mapping[str, Any], clock_ahead_ms: int) -> str:
    """The facts in one line."""
    gpus = ", ".join(facts["gpus"]["names"]) if wants_gpus(host) else f"{host.gpus} x {host.gpu} (not checked)"
    ahead_s = clock_ahead_ms / 1000
    clock = (
        "agrees"
        if abs(ahead_s) < CLOCKS_AGREE_S
        else f"is {abs(ahead_s):,.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
    )
    parts = (
        f"Python {facts['python']}",
        facts["architecture"],
        *((gpus,) if host.gpu else ()),
        f"{facts['free_bytes'] / GB:.0f} GB free",
        f"{facts['free_slots']} of {host.slots} slots free",
        f"its clock {clock}",
    )
    return ", ".join(parts)


def _check_gpus(host: Host, found: Mapping[str, Any], section: str) -> None:
    names = [str(name) for name in found["names"]]
    right = [name for name in names if host.gpu in gpus_named(name)]
    if len(right) >= host.gpus:
        return
    seen = ", ".join(names) if names else f"none ({found['why'] or 'nvidia-smi lists none'})"
    raise SetupError(
        f"{host.name} is declared to have {host.gpus} x {host.gpu}; found: {seen}",
        hint=f"correct gpu and gpus in {section}, or check the driver: {shlex.quote('nvidia-smi')} on {host.address}",
        scope="region",
    )
