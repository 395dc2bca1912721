"""Facts of one AWS region: instance types, and the zones that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from providers.aws.hardware import InstanceType, described
from providers.collect.facts import Finding, Flag, SkipReason
from providers.collect.pages import Pages
from providers.errors import FormatError

GPU_FAMILIES = ["p*", "g*"]
"""AWS cannot filter by GPU, but the names of all families with GPUs start with these letters."""


def pages_of(client: Any, operation: str, **asked: Any) -> Iterator[Mapping[str, Any]]:
    """The pages of an operation. botocore detects a token that repeats at once, but not a longer loop.

    Raises botocore's exceptions, and FormatError for pages that do not end.
    """
    links = Pages(f"AWS's answer to {operation}")
    for page in client.get_paginator(operation).paginate(**asked):
        yield page
        if page.get("NextToken"):
            links.follow(str(page["NextToken"]))


def enabled_regions(ec2: Any) -> list[str]:
    """The regions that the account has enabled. Raises FormatError and botocore's exceptions."""
    rows = rows_of(ec2.describe_regions(AllRegions=True), "Regions")
    return sorted(row["RegionName"] for row in rows if row.get("OptInStatus") != "not-opted-in")


def rows_of(answer: Mapping[str, Any], name: str) -> Sequence[Any]:
    """The list `name` of an answer. Raises FormatError if it is missing, which is not the same as empty."""
    rows = answer.get(name)
    if not isinstance(rows, list):
        raise FormatError(f"AWS's answer has no list {name}")
    return rows


def types_of(ec2: Any, finding: Finding, only: Sequence[str] = ()) -> dict[str, InstanceType]:
    """Instance types by name: all with whole GPUs; or those of `only` that can be rented, also without GPUs. (Renewing
    a machine needs the Nitro system: on others, the machine's metadata does not show changed tags.) Raises FormatError
    and botocore's exceptions."""
    found = {}
    asked: dict[str, Any] = (
        {"InstanceTypes": list(only)} if only else {"Filters": [{"Name": "instance-type", "Values": GPU_FAMILIES}]}
    )
    for page in pages_of(ec2, "describe_instance_types", **asked):
        rows = rows_of(page, "InstanceTypes")
        finding.page(len(rows))
        for row in rows:
            try:
                kind = described(row, with_cpus=bool(only))
            except (KeyError, TypeError, ValueError) as error:
                finding.flag(Flag.MALFORMED, f"aws/{finding.region}", f"instance type lacks {error}: {str(row)[:200]}")
                continue
            if kind is None:
                finding.skip(SkipReason.NO_GPU)
            elif only and row.get("Hypervisor") == "xen":
                finding.flag(Flag.NO_HARDWARE, f"aws/{finding.region}", f"{kind.name} is not on the Nitro system")
            else:
                found[kind.name] = kind
    return found


def zones_by_type(ec2: Any, finding: Finding, only: Sequence[str] = ()) -> dict[str, set[str]]:
    """The IDs of the zones that offer each instance type (of `only`, or with GPUs). IDs, because AWS assigns zone names
    per account."""
    found: dict[str, set[str]] = {}
    wanted = [{"Name": "instance-type", "Values": list(only) or GPU_FAMILIES}]
    where = "availability-zone-id"
    for page in pages_of(ec2, "describe_instance_type_offerings", LocationType=where, Filters=wanted):
        rows = rows_of(page, "InstanceTypeOfferings")
        finding.page(len(rows))
        for row in rows:
            found.setdefault(row["InstanceType"], set()).add(row["Location"])
    return found
