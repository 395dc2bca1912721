"""Quotas: how many machines of each offer the account may still rent, and at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.market.listing import Listing, Shape, Site
from providers.base import Covered, Quota


@dataclass(frozen=True, slots=True)
class Room:
    """At most `most` machines of an offer may be rented at once, and `left` now: by `quota`, which takes `each` units
    for a machine."""

    left: int
    most: int
    each: int
    quota: Quota

    def why(self, machines: int) -> str:
        """Why so many machines cannot be rented now."""
        quota, each = self.quota, "" if self.each == 1 else f" of {self.each}"
        wanted = f"a machine{each} is" if machines == 1 else f"{machines} machines{each} are"
        unit = quota.covers.unit.replace("vcpus", "vCPUs").replace("gpus", "GPUs") if quota.covers else "units"
        allowed = f"{quota.name} in {quota.scope} allows {quota.limit} {unit}, {quota.used} in use"
        remedy = f"; {quota.remedy}" if quota.remedy else ""
        return f"your quota, not the market: {allowed}, and {wanted} wanted{remedy}"


def rooms(listing: Listing, quotas: Mapping[str, Sequence[Quota]]) -> dict[int, Room]:
    """The tightest quota of each row that has one. `quotas` are by provider."""
    limiting = {name: [each for each in known if each.covers is not None] for name, known in quotas.items()}
    found: dict[int, Room] = {}
    seen: dict[tuple[int, str, bool], Room | None] = {}
    for row in range(len(listing)) if any(limiting.values()) else ():
        site, spot = listing.sites[listing.site[row]], bool(listing.spot[row])
        key = (int(listing.shape[row]), site.region, spot)
        if key not in seen:
            shape = listing.shapes[key[0]]
            room = (_room(each, shape, site, spot=spot) for each in limiting.get(site.provider, ()))
            fitting = (each for each in room if each is not None)
            seen[key] = min(fitting, key=lambda each: (each.left, each.most, each.quota.name), default=None)
        if (tightest := seen[key]) is not None:
            found[row] = tightest
    return found


def _room(quota: Quota, shape: Shape, site: Site, *, spot: bool) -> Room | None:
    """None if the quota does not cover this, or machines of it take nothing of it."""
    covers = quota.covers
    if covers is None or not _covered(covers, shape, site, spot=spot):
        return None
    each = {"machines": 1, "vcpus": shape.vcpu, "gpus": shape.gpu_count}[covers.unit]
    if each <= 0:
        return None
    return Room(max(quota.limit - quota.used, 0) // each, max(quota.limit, 0) // each, each, quota)


def _covered(covers: Covered, shape: Shape, site: Site, *, spot: bool) -> bool:
    def any_of(patterns: Sequence[str], name: str) -> bool:
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    same = covers.spot is None or covers.spot == spot
    return same and any_of(covers.regions, site.region) and any_of(covers.instance_types, shape.instance_type)
