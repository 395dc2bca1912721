"""Reads GCP's rows and its log of operations about Tradewind's machines.

A deleted machine has no row. The operations on it then show when it began and ended, and why; GCP keeps them for 14
days.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from providers.collect.facts import instant_ms
from providers.gcp.names import PROVIDER, instance_id, offer_of, region_of_zone, token_of
from providers.gcp.request import LAUNCH
from providers.gcp.session import is_done
from providers.instance import EndReason, Instance, InstanceState
from providers.machine.lifetime import LIVES
from providers.offer import CapacityType, OfferId

EARLY_MS = 60_000
"""How much earlier than its time to live a machine may end (providers.machine.lifetime)."""
SOON_MS = 600_000
"""How long before the end of its longest possible run a machine counts as having a notice."""
_STATES = {
    **dict.fromkeys(("PENDING", "PROVISIONING", "STAGING"), InstanceState.PENDING),
    **dict.fromkeys(("RUNNING", "REPAIRING"), InstanceState.RUNNING),
    **dict.fromkeys(("TERMINATED", "STOPPED", "SUSPENDED"), InstanceState.TERMINATED),
}
_CREATE = ("insert", "bulkInsert")
_REASONS = {
    "delete": EndReason.USER,
    "stop": EndReason.USER,
    "compute.instances.preempted": EndReason.PREEMPTED,
    "compute.instances.guestTerminate": EndReason.FAILED,
    "compute.instances.hostError": EndReason.FAILED,
    "compute.instances.terminateOnHostMaintenance": EndReason.FAILED,
}
_GOOGLE = "system"

Row = Any
"""google.cloud.compute_v1.Instance, or Operation."""


def landed_in(operation: Row, count: int) -> str | None:
    """The zone in which a launch that accepted several has created all its machines, if its operation names it."""
    found = operation.instances_bulk_insert_operation_metadata.per_location_status
    for place, status in found.items():
        if is_done(operation) and status.created_vm_count - status.deleted_vm_count >= count:
            return _last(place)
    return None


def metadata_of(row: Row) -> dict[str, str]:
    """The metadata of a machine."""
    return {item.key: item.value for item in row.metadata.items}


def launch_of(row: Row) -> dict[str, Any]:
    """Token, tags and fingerprint of the launch of a machine; empty if it has none that can be read."""
    try:
        found = json.loads(metadata_of(row).get(LAUNCH, ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def offer_in(zone: str, row: Row) -> OfferId:
    """The offer of a machine, from its hardware."""
    kind = _last(row.machine_type)
    for card in row.guest_accelerators:
        if "+" not in kind and kind.startswith("n1-"):
            kind += f"+{card.accelerator_count}x{_last(card.accelerator_type)}"
    capacity = CapacityType.SPOT if row.scheduling.provisioning_model == "SPOT" else CapacityType.ON_DEMAND
    return OfferId(PROVIDER, region_of_zone(zone), zone, kind, capacity)


def instance(zone: str, row: Row, now_ms: int) -> Instance:
    """The machine of a row."""
    state = _STATES.get(row.status, InstanceState.STOPPING)
    began_ms, launch = instant_ms(row.creation_timestamp), launch_of(row)
    ended_ms = reason = notice_ms = None
    if state is InstanceState.TERMINATED:
        ended_ms = max(began_ms, instant_ms(row.last_stop_timestamp) if row.last_stop_timestamp else now_ms)
        limit_ms = _limit_ms(metadata_of(row).get(LIVES, ""), began_ms)
        over = limit_ms is not None and ended_ms >= limit_ms - EARLY_MS
        reason = EndReason.EXPIRED if over else EndReason.FAILED
    elif row.resource_status.scheduling.termination_timestamp:
        last_ms = instant_ms(row.resource_status.scheduling.termination_timestamp)
        notice_ms = last_ms if now_ms >= last_ms - SOON_MS else None
    return Instance(
        instance_id(zone, row.name),
        PROVIDER,
        str(offer_in(zone, row)),
        str(launch.get("token", token_of(row.name))),
        state,
        began_ms,
        ended_ms,
        reason,
        notice_ms,
        dict(launch.get("tags", {})),
    )


def forgotten(zone: str, name: str, operations: Iterable[Row], machine_types: Sequence[str]) -> Instance | None:
    """A machine without a row, from the operations on it, in any order; None if they do not show that it has ended."""
    began_ms: int | None = None
    failed = False
    ends: list[tuple[int, EndReason]] = []
    for operation in operations:
        kind, done = operation.operation_type, is_done(operation)
        if kind in _CREATE:
            failed = done and bool(operation.error.errors)
            began_ms = instant_ms(operation.insert_time)
        elif kind in _REASONS and done and not operation.error.errors:
            expired = kind == "delete" and operation.user == _GOOGLE  # its longest possible run was over
            ends.append((instant_ms(operation.end_time), EndReason.EXPIRED if expired else _REASONS[kind]))
    offer = offer_of(zone, name, machine_types)
    named = (instance_id(zone, name), PROVIDER, str(offer), token_of(name), InstanceState.TERMINATED)
    if failed:
        return Instance(*named, None, None, EndReason.FAILED)
    if not ends:
        return None
    ended_ms, reason = min(ends, key=lambda end: end[0])
    return Instance(*named, ended_ms if began_ms is None else min(began_ms, ended_ms), ended_ms, reason)


def _limit_ms(said: str, began_ms: int) -> int | None:
    """When a machine was to end, by its attribute LIVES."""
    seconds, _, since = said.partition(" from ")
    if not seconds.isdigit():
        return None
    return (int(since) if since.isdigit() else began_ms) + int(seconds) * 1000


def _last(url: str) -> str:
    return url.rpartition("/")[2]
