"""Quotas: how many machines of each offer may be rented, now and in total. The limit is the account's quota or, for
owned machines, their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from orchestrator.market.listing import Listing, Shape, Site
from providers.base import Covered, Quota

MOST_UNITS = 10**15
"""Of any quota: more would limit nothing, and exceeds the numbers of the market's columns. Clouds state the largest
number that they have for a quota without a limit."""
QuotaName = tuple[str, Quota]
"""A provider, and one of its quotas."""
Rooms = Mapping[int, tuple["Room", ...]]
"""For each row that a quota covers: the room that each of its quotas leaves, the tightest first."""


@dataclass(frozen=True, slots=True)
class Room:
    """The room that a quota leaves for machines of one offer; each machine takes `each` units.

    `taken` counts the units that the provider's figures do not include: the units of machines requested since, and of
    machines planned for other jobs.
    """

    provider: str
    quota: Quota
    each: int
    taken: int = 0

    @property
    def name(self) -> QuotaName:
        """Which quota this is."""
        return self.provider, self.quota

    @property
    def units(self) -> int:
        """The units that are left."""
        return min(max(self.quota.limit - self.quota.used - self.taken, 0), MOST_UNITS)

    @property
    def left(self) -> int:
        """How many machines may be rented now."""
        return self.units // self.each

    @property
    def most(self) -> int:
        """How many machines may be rented at once if none is in use."""
        return min(max(self.quota.limit, 0), MOST_UNITS) // self.each

    def why(self, machines: int) -> str:
        """Why this number of machines cannot be rented now."""
        if self.quota.owned:
            return self._why_owned(machines)
        quota, each = self.quota, "" if self.each == 1 else f" of {self.each}"
        wanted = f"a machine{each} is" if machines == 1 else f"{machines} machines{each} are"
        unit = quota.covers.unit.replace("vcpus", "vCPUs").replace("gpus", "GPUs") if quota.covers else "units"
        taken = f" and {self.taken} planned or on their way" if self.taken else ""
        allowed = f"{quota.name} in {quota.scope} allows {quota.limit} {unit}, {quota.used} in use{taken}"
        remedy = f"; {quota.remedy}" if quota.remedy else ""
        return f"your quota, not the market: {allowed}, and {wanted} wanted{remedy}"

    def _why_owned(self, machines: int) -> str:
        limit, used, free = self.quota.limit, self.quota.used, self.units
        on, remedy = f"on {self.quota.scope}", f"; {self.quota.remedy}" if self.quota.remedy else ""
        wanted = f"{machines} {'is' if machines == 1 else 'are'} wanted"
        if self.most < machines:
            there = f"there is 1 machine {on}" if limit == 1 else f"there are {limit} machines {on}"
            return f"{there}, and {wanted}{remedy}"
        if free:
            return f"{free} of {limit} machines {on} {'is' if free == 1 else 'are'} free, and {wanted}{remedy}"
        if limit == 1:
            return f"the machine {on} is {'planned for another job, or on its way' if self.taken else 'in use'}{remedy}"
        if self.taken:
            return f"all {limit} machines {on} are taken: {used} in use, {self.taken} planned or on their way{remedy}"
        return f"all {limit} machines {on} are in use{remedy}"


def rooms(listing: Listing, quotas: Mapping[str, Sequence[Quota]]) -> Rooms:
    """The room that the `quotas` (by provider) leave, for each row that one of them covers."""
    limiting = {name: [each for each in known if each.covers is not None] for name, known in quotas.items()}
    found: dict[int, tuple[Room, ...]] = {}
    seen: dict[tuple[int, int, bool], tuple[Room, ...]] = {}
    for row in range(len(listing)) if any(limiting.values()) else ():
        site, spot = listing.sites[listing.site[row]], bool(listing.spot[row])
        key = (int(listing.shape[row]), int(listing.site[row]), spot)
        if key not in seen:
            shape = listing.shapes[key[0]]
            room = (_room(each, shape, site, spot=spot) for each in limiting.get(site.provider, ()))
            seen[key] = _tightest_first(each for each in room if each is not None)
        if seen[key]:
            found[row] = seen[key]
    return found


def units_taken(known: Rooms, machines: Iterable[tuple[int, int]]) -> Counter[QuotaName]:
    """The units of each quota that some machines take, given as pairs of (row, number of machines)."""
    taken: Counter[QuotaName] = Counter()
    for row, count in machines:
        for room in known.get(row, ()):
            taken[room.name] += room.each * count
    return taken


def rooms_without(known: Rooms, taken: Mapping[QuotaName, int]) -> Rooms:
    """The room that is left if these units are taken as well. A negative number gives units back."""
    if not taken:
        return known
    found = {}
    changed: dict[tuple[Room, ...], tuple[Room, ...]] = {}
    for row, of_row in known.items():
        if of_row not in changed:
            changed[of_row] = _tightest_first(
                replace(each, taken=each.taken + taken.get(each.name, 0)) for each in of_row
            )
        found[row] = changed[of_row]
    return found


def rooms_raised(known: Rooms, name: QuotaName, more: int) -> Rooms:
    """The room that would be left if the quota `name` had `more` units in addition."""
    provider, quota = name
    raised = replace(quota, limit=max(quota.limit, 0) + more)
    return {
        row: _tightest_first(replace(each, quota=raised) if each.name == (provider, quota) else each for each in of_row)
        for row, of_row in known.items()
    }


def why_over_quota(of_row: Sequence[Room], machines: int) -> str:
    """Why this number of machines of a row cannot be rented now. A quota that can never allow them is named first."""
    never = (each for each in of_row if each.most < machines)
    return next(never, of_row[0]).why(machines)


def _tightest_first(found: Iterable[Room]) -> tuple[Room, ...]:
    return tuple(sorted(found, key=lambda each: (each.left, each.most, each.quota.name)))


def _room(quota: Quota, shape: Shape, site: Site, *, spot: bool) -> Room | None:
    """The room that a quota leaves for one shape at one site; None if the quota does not cover it, or its machines take
    no units."""
    covers = quota.covers
    if covers is None or not _covered(covers, shape, site, spot=spot):
        return None
    each = {"machines": 1, "vcpus": shape.vcpu, "gpus": shape.gpu_count}[covers.unit]
    return Room(site.provider, quota, each) if each > 0 else None


def _covered(covers: Covered, shape: Shape, site: Site, *, spot: bool) -> bool:
    def any_of(patterns: Sequence[str], name: str) -> bool:
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    same = covers.spot is None or covers.spot == spot
    where = any_of(covers.regions, site.region) and any_of(covers.zones, site.zone)
    return same and where and any_of(covers.instance_types, shape.instance_type)
