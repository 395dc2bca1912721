"""The vCPUs that an account may run in a region, by family of instance types and capacity type.

The limits are those of Service Quotas, by their names (docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas
.html): "Running On-Demand G and VT instances", "All G and VT Spot Instance Requests". Usage counts everything that runs
in the account, not only Tradewind's machines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from providers.aws.regions import pages_of
from providers.aws.rows import Row
from providers.aws.session import Connections
from providers.base import Covered, Quota
from providers.clock import Clock

FRESH_S = 3600.0
"""How long limits are kept before they are requested again: they change when AWS grants an increase."""
_NAME = re.compile(r"Running On-Demand (?P<running>.+) instances|All (?P<spot>.+) Spot Instance Requests")
_ALIVE = ["pending", "running", "shutting-down", "stopping"]


class Quotas:
    """Methods raise botocore's exceptions and ProviderErrors."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._limits: dict[str, tuple[float, list[Quota]]] = {}

    def of(self, region: str, instance_types: Iterable[str]) -> list[Quota]:
        """The quotas of a region that one of these types counts against, with what is in use."""
        now_s = self._clock.monotonic_s()
        if region not in self._limits or now_s - self._limits[region][0] > FRESH_S:
            self._limits[region] = now_s, list(self._asked(region))
        known = [each for each in self._limits[region][1] if any(_covers(each, name) for name in instance_types)]
        used = self._used(region) if known else {}
        return [
            replace(each, used=sum(n for (name, spot), n in used.items() if _covers(each, name, spot)))
            for each in known
        ]

    def _asked(self, region: str) -> Iterator[Quota]:
        client = self._connections.client("service-quotas", region)
        for page in pages_of(client, "list_service_quotas", ServiceCode="ec2"):
            for row in page["Quotas"]:
                if found := _NAME.fullmatch(row["QuotaName"]):
                    covers = Covered(
                        "vcpus", (region,), _patterns(found["running"] or found["spot"]), spot=found["spot"] is not None
                    )
                    yield Quota(row["QuotaName"], region, int(row["Value"]), 0, covers, _remedy(row, region))

    def _used(self, region: str) -> Mapping[tuple[str, bool], int]:
        """vCPUs by instance type and whether spot."""
        used: Counter[tuple[str, bool]] = Counter()
        alive = [{"Name": "instance-state-name", "Values": _ALIVE}]
        for page in pages_of(self._connections.client("ec2", region), "describe_instances", Filters=alive):
            for row in (each for group in page["Reservations"] for each in group["Instances"]):
                used[row["InstanceType"], row.get("InstanceLifecycle") == "spot"] += _vcpus(row)
        return used


def _vcpus(row: Row) -> int:
    cpu = row.get("CpuOptions", {})
    return int(cpu.get("CoreCount", 0)) * int(cpu.get("ThreadsPerCore", 1))


def _covers(quota: Quota, instance_type: str, spot: bool | None = None) -> bool:
    covers = quota.covers
    return (
        covers is not None
        and spot in (None, covers.spot)
        and any(fnmatchcase(instance_type, each) for each in covers.instance_types)
    )


def _patterns(families: str) -> tuple[str, ...]:
    """Of "Standard (A, C, D)", "G and VT", "P4, P3 and P2", "High Memory"."""
    if families == "High Memory":
        return ("u-*",)
    listed = re.fullmatch(r".*\((.+)\)", families)
    names = re.split(r",\s*|\s+and\s+", listed[1] if listed else families)
    return tuple(f"{name.lower()}*" if name[-1].isdigit() else f"{name.lower()}[0-9]*" for name in names)


def _remedy(row: Mapping[str, Any], region: str) -> str:
    asked = f"--service-code ec2 --quota-code {row['QuotaCode']} --region {region} --desired-value N"
    return f"request an increase: aws service-quotas request-service-quota-increase {asked}"
