"""Reads EC2's rows about Tradewind's machines.

An ended machine loses its tags after a while, so other fields are used where possible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from providers.instance import EndReason, Instance, InstanceState
from providers.machine.lifetime import LIVES
from providers.offer import CapacityType, OfferId

PROVIDER = "aws"
REQUEST = "tradewind-request"
"""The tag with the fingerprint of the launch."""
TOKEN = "tradewind-token"
"""The tag with the launch token of a machine that a fleet launched: EC2 gives such a machine another client token."""
OWN_TAGS = (LIVES, REQUEST, TOKEN)
NOTICE_MS = 120_000
"""From AWS's notice to the end of a spot machine."""
EARLY_MS = 60_000
"""How much earlier than its time to live a machine may end (providers.machine.lifetime)."""
_STATES = {"pending": InstanceState.PENDING, "running": InstanceState.RUNNING, "terminated": InstanceState.TERMINATED}
_REASONS = {
    "Client.UserInitiatedShutdown": EndReason.USER,
    "Server.SpotInstanceTermination": EndReason.PREEMPTED,
    "Server.SpotInstanceShutdown": EndReason.PREEMPTED,
}
_BY_ITSELF = "Client.InstanceInitiatedShutdown"
_WHEN = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_ID = re.compile(rf"{PROVIDER}-([a-z0-9-]+)-(i-[0-9a-f]+)")

Row = Mapping[str, Any]


def instance_id(region: str, row: Row) -> str:
    """The id of a machine: its region, and AWS's own id."""
    return f"{PROVIDER}-{region}-{row['InstanceId']}"


def place_of(instance_id: str) -> tuple[str, str] | None:
    """The region and AWS's own id; None if the id is not of this provider."""
    found = _ID.fullmatch(instance_id)
    return (found[1], found[2]) if found else None


def tags_of(row: Row) -> dict[str, str]:
    """The tags of a machine."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in row.get("Tags", [])}


def instance(region: str, row: Row, request: Row | None, seen_ms: int) -> Instance:
    """The machine of a row, with the row of its spot request. `seen_ms` is when it was first seen to have ended."""
    state = _STATES.get(row["State"]["Name"], InstanceState.STOPPING)
    began_ms, tags = _ms(row["LaunchTime"]), tags_of(row)
    status = {} if request is None else request.get("Status", {})
    ended_ms = reason = notice_ms = None
    if state is InstanceState.TERMINATED:
        limit_ms = _limit_ms(tags.get(LIVES, ""), began_ms)
        code = row.get("StateReason", {}).get("Code", "")
        ended_ms = max(began_ms, _ended_ms(row, status, limit_ms if code == _BY_ITSELF else None, seen_ms))
        reason = _REASONS.get(code, EndReason.FAILED)
        if code == _BY_ITSELF and limit_ms is not None and ended_ms >= limit_ms - EARLY_MS:
            reason = EndReason.EXPIRED
    elif status.get("Code") == "marked-for-termination" and "UpdateTime" in status:
        notice_ms = _ms(status["UpdateTime"]) + NOTICE_MS
    capacity = CapacityType.SPOT if row.get("InstanceLifecycle") == "spot" else CapacityType.ON_DEMAND
    offer = OfferId(PROVIDER, region, row["Placement"]["AvailabilityZoneId"], row["InstanceType"], capacity)
    kept = {name: value for name, value in tags.items() if name not in OWN_TAGS}
    token = tags.get(TOKEN) or str(row.get("ClientToken", ""))
    name = instance_id(region, row)
    return Instance(name, PROVIDER, str(offer), token, state, began_ms, ended_ms, reason, notice_ms, kept)


def _ended_ms(row: Row, status: Row, limit_ms: int | None, seen_ms: int) -> int:
    """When a machine ended: AWS reports it in a text, in the spot request, or not at all."""
    if found := _WHEN.search(row.get("StateTransitionReason", "")):
        return _ms(datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC))
    if status.get("Code", "").startswith("instance-terminated") and "UpdateTime" in status:
        return _ms(status["UpdateTime"])
    return seen_ms if limit_ms is None else min(seen_ms, limit_ms)


def _limit_ms(tag: str, began_ms: int) -> int | None:
    """When a machine was to end, by its tag LIVES."""
    seconds, _, since = tag.partition(" from ")
    if not seconds.isdigit():
        return None
    return (int(since) if since.isdigit() else began_ms) + int(seconds) * 1000


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
