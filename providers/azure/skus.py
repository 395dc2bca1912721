"""What a subscription may start in one region: sizes, their capacity types, and the quotas that they count against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.azure.hardware import Size, sizes
from providers.base import Covered, Quota
from providers.closed import Closed
from providers.hardware import GIB

SPOT_CORES, CORES = "lowPriorityCores", "cores"
"""The quotas of a region for all spot machines and for all others."""
_REMEDY = "request an increase in the portal (Quotas, Compute), or end other machines of the subscription"

_ASK = "ask Azure for access in the portal (Help + support, service and subscription limits), or choose another region"


@dataclass(frozen=True, slots=True)
class Sku:
    """A size, whether it is sold as spot, and the quota of its family (for machines that are not spot)."""

    size: Size
    spot: bool
    family: str


def rentable(found: Iterable[Any], names: Iterable[str]) -> dict[str, Sku]:
    """The sizes of these names that may be started, by lower-case name; without those whose GPUs are unknown. `found`
    is what `Connections.resource_skus` returns."""
    wanted = {name.lower() for name in names}
    skus: dict[str, Sku] = {}
    for each in found:
        if each is None or each.resource_type != "virtualMachines" or str(each.name).lower() not in wanted:
            continue
        about = {str(row.name): str(row.value) for row in each.capabilities or ()}
        size = _size(str(each.name), about)
        closed = any(_is(row.type, "Location") for row in each.restrictions or ())
        if size is not None and not closed:
            skus[size.name.lower()] = Sku(size, about.get("LowPriorityCapable") == "True", str(each.family or ""))
    return skus


def barred(found: Iterable[Any], region: str, names: Iterable[str]) -> dict[tuple[str, str], Closed]:
    """Why the subscription may not start sizes of these names in a region, by region and lower-case name: a restriction
    of Azure's, or the region itself. `found` is what `Connections.resource_skus` returns."""
    wanted = {name.lower(): name for name in names}
    machines = [each for each in found if each is not None and each.resource_type == "virtualMachines"]
    if not machines:
        reason = "the subscription has no virtual machines in this region"
        return {(region, key): Closed(region, name, reason, _ASK) for key, name in wanted.items()}
    closed = {}
    for each in machines:
        key = str(each.name).lower()
        for row in each.restrictions or () if key in wanted else ():
            if _is(row.type, "Location"):
                code = str(getattr(row.reason_code, "value", row.reason_code))
                reason = f"Azure does not allow it in this region: {code}"
                closed[region, key] = Closed(region, wanted[key], reason, _ASK)
    return closed


def _is(value: Any, name: str) -> bool:
    return str(getattr(value, "value", value)) == name


def quotas(usages: Iterable[Any], region: str, skus: Sequence[Sku]) -> Iterator[Quota]:
    """The quotas, in vCPUs, that machines of these sizes count against. `usages` is what azure-mgmt-compute lists."""
    for row in usages:
        name = str(row.name.value)
        types = tuple(sku.size.name for sku in skus if name in (CORES, SPOT_CORES, sku.family))
        if types:
            limit, used = int(row.limit), int(row.current_value)  # usage may exceed the limit
            covers = Covered("vcpus", (region,), types, spot=name == SPOT_CORES)
            yield Quota(name, region, max(limit, used), used, covers, _REMEDY)


def _size(name: str, about: Mapping[str, str]) -> Size | None:
    """A size of the catalogue, or one without GPUs."""
    known = sizes().get(name.lower())
    if known is not None or int(about.get("GPUs", "0") or 0):
        return known
    try:
        return Size(name, None, 0, int(about["vCPUs"]), round(float(about["MemoryGB"]) * GIB))
    except (KeyError, ValueError):
        return None
