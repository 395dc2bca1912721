"""Declarations of a laboratory's hosts, as tradewind.toml would have them."""

from __future__ import annotations

from typing import Any

from tests.machines.lab import USER, Laboratory


def declared(lab: Laboratory, *names: str, **options: Any) -> dict[str, dict[str, Any]]:
    """Tables of `providers.static.hosts`; `options` apply to all of them."""
    table = {
        "user": USER,
        "key_file": str(lab.key),
        "known_hosts": str(lab.known_hosts),
        "ssh_config": "/dev/null",
        "vcpus": 16,
        "memory_gb": 32,
        "disk_gb": 0.1,
        "price_per_hour": 0.8,
        **options,
    }
    kept = {option: value for option, value in table.items() if value is not None}
    return {name: {"address": lab.hosts[name].address, **kept} for name in names}
