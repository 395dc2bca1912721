"""Facts of one AWS region: instance types with GPUs, and the zones that really have them. Must not know prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from providers.aws.hardware import InstanceType, described
from providers.collect.facts import Finding, Flag
from providers.errors import FormatError

GPU_FAMILIES = ["p*", "g*"]
"""AWS cannot filter by GPU, but every family with one begins so."""


def enabled_regions(ec2: Any) -> list[str]:
    """Regions that the account has switched on."""
    rows = rows_of(ec2.describe_regions(AllRegions=True), "Regions")
    return sorted(row["RegionName"] for row in rows if row.get("OptInStatus") != "not-opted-in")


def rows_of(answer: Mapping[str, Any], name: str) -> Sequence[Any]:
    """The list that an answer is there for. Raises FormatError without it: no list is not an empty one."""
    rows = answer.get(name)
    if not isinstance(rows, list):
        raise FormatError(f"AWS's answer has no list {name}")
    return rows


def gpu_types(ec2: Any, finding: Finding) -> dict[str, InstanceType]:
    """Instance types with whole GPUs, by name."""
    found = {}
    pages = ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": GPU_FAMILIES}]
    )
    for page in pages:
        rows = rows_of(page, "InstanceTypes")
        finding.page(len(rows))
        for row in rows:
            try:
                kind = described(row)
            except (KeyError, TypeError, ValueError) as error:
                finding.flag(
                    Flag.MALFORMED, f"aws/{finding.region}", f"instance type without {error}: {str(row)[:200]}"
                )
                continue
            if kind is not None:
                found[kind.name] = kind
    return found


def zones_by_type(ec2: Any, finding: Finding) -> dict[str, set[str]]:
    """Instance type -> IDs of the zones that offer it. IDs, because AWS shuffles the names of zones per account."""
    found: dict[str, set[str]] = {}
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": GPU_FAMILIES}]
    )
    for page in pages:
        rows = rows_of(page, "InstanceTypeOfferings")
        finding.page(len(rows))
        for row in rows:
            found.setdefault(row["InstanceType"], set()).add(row["Location"])
    return found
