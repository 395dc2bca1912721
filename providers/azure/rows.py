"""Reads ARM's rows about Tradewind's machines, and makes the machines' names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any

from providers.instance import EndReason, Instance, InstanceState
from providers.machine.lifetime import LIVES
from providers.offer import CapacityType, OfferId

PROVIDER = "azure"
TOKEN, REQUEST, COUNT = "tradewind-token", "tradewind-request", "tradewind-count"
"""Tags: the launch token, the fingerprint of the launch, and its number of machines."""
EARLY_MS = 60_000
"""How much earlier than its time to live a machine may end (providers.machine.lifetime)."""
_OWN_TAGS = (LIVES, TOKEN, REQUEST, COUNT)
_ID = re.compile(rf"{PROVIDER}-([a-z0-9]+)-(tw-[0-9a-f]{{24}}-\d+)")
_POWER = "PowerState/"

Row = Mapping[str, Any]


def names(token: str, count: int) -> tuple[str, ...]:
    """The names of a launch's machines: the same for the same token, so a repeated launch creates no others."""
    stem = f"tw-{blake2b(token.encode(), digest_size=12).hexdigest()}"
    return tuple(f"{stem}-{number}" for number in range(count))


def instance_id(region: str, name: str) -> str:
    """The id of a machine: its region and its name."""
    return f"{PROVIDER}-{region}-{name}"


def place_of(instance_id: str) -> tuple[str, str] | None:
    """The region and name of a machine; None if the id is not of this provider."""
    found = _ID.fullmatch(instance_id)
    return (found[1], found[2]) if found else None


def tags_of(row: Row) -> dict[str, str]:
    """The tags of a resource."""
    return {str(name): str(value) for name, value in (row.get("tags") or {}).items()}


def kept_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that the launch requested."""
    return {name: value for name, value in tags.items() if name not in _OWN_TAGS}


def region_of(row: Row) -> str:
    """The region of a resource; Azure may write "East US" for eastus."""
    return str(row["location"]).lower().replace(" ", "")


def began_ms(vm: Row) -> int:
    """When Azure created a machine, in whole seconds."""
    return _instant_ms(vm["properties"]["timeCreated"]) // 1000 * 1000


def offer_id(vm: Row) -> str:
    """The offer that a machine was rented as."""
    about = vm["properties"]
    capacity = CapacityType.SPOT if about.get("priority") == "Spot" else CapacityType.ON_DEMAND
    zone = next(iter(vm.get("zones") or ()), "")
    return str(OfferId(PROVIDER, region_of(vm), zone, about["hardwareProfile"]["vmSize"], capacity))


def state(vm: Row) -> InstanceState:
    """The lifecycle state of a machine."""
    power, provisioning = _power(vm), str(vm["properties"].get("provisioningState", ""))
    if provisioning == "Deleting" or power in ("stopping", "stopped", "deallocating", "deallocated"):
        return InstanceState.STOPPING
    return InstanceState.RUNNING if power == "running" else InstanceState.PENDING


def deleting_since_ms(vm: Row, otherwise_ms: int) -> int | None:
    """Since when a machine is being deleted (epoch ms, whole seconds): `otherwise_ms` if Azure does not say; None if it
    is not."""
    if str(vm["properties"].get("provisioningState", "")) != "Deleting":
        return None
    since = next((each.get("time") for each in _statuses(vm) if each.get("code") == "ProvisioningState/deleting"), None)
    return (otherwise_ms if since is None else _instant_ms(since)) // 1000 * 1000


def over(vm: Row, now_ms: int) -> EndReason | None:
    """Why a machine that Azure keeps, and mostly bills, has to be deleted; None if it is alive or being deleted.

    A failed update does not end a machine: it runs on.
    """
    provisioning, power = str(vm["properties"].get("provisioningState", "")), _power(vm)
    if provisioning == "Deleting":
        return None
    limit_ms = _limit_ms(vm)
    if power in ("stopped", "deallocated"):
        in_time = limit_ms is None or now_ms < limit_ms - EARLY_MS
        return EndReason.FAILED if in_time else EndReason.EXPIRED
    if provisioning == "Failed" and not power:
        return EndReason.FAILED
    return EndReason.EXPIRED if limit_ms is not None and now_ms >= limit_ms else None


def failure(vm: Row) -> tuple[str, str]:
    """(code, message) of a machine that could not be created: the status `ProvisioningState/failed/CODE`."""
    for status in _statuses(vm):
        parts = str(status.get("code", "")).split("/")
        if parts[:2] == ["ProvisioningState", "failed"]:
            return (parts[2] if len(parts) > 2 else ""), str(status.get("message", ""))
    return "", ""


def instance(vm: Row) -> Instance:
    """The machine of a row."""
    tags, region = tags_of(vm), region_of(vm)
    name = instance_id(region, str(vm["name"]))
    found = state(vm)
    return Instance(
        name, PROVIDER, offer_id(vm), tags.get(TOKEN, ""), found, began_ms(vm), None, None, None, kept_tags(tags)
    )


def _instant_ms(text: object) -> int:
    return int(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1000)


def _statuses(vm: Row) -> list[Row]:
    return list((vm["properties"].get("instanceView") or {}).get("statuses") or ())


def _power(vm: Row) -> str:
    codes = [str(each.get("code", "")) for each in _statuses(vm)]
    return next((code.removeprefix(_POWER) for code in codes if code.startswith(_POWER)), "")


def _limit_ms(vm: Row) -> int | None:
    """When a machine is to end, by its tag LIVES."""
    seconds, _, since = tags_of(vm).get(LIVES, "").partition(" from ")
    if not seconds.isdigit():
        return None
    return (int(since) if since.isdigit() else began_ms(vm)) + int(seconds) * 1000
