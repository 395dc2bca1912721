"""The quotas of a project on the loopback Compute Engine: served with what is in use, and enforced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.clouds.gcp import GcpMachine

OF_PROJECT = ("GPUS_ALL_REGIONS", "CPUS_ALL_REGIONS")
FAMILIES = ("A2", "C2", "C2D", "C3", "M1", "M2", "M3", "N2", "N2D", "T2A", "T2D")
"""Families that never count against CPUS."""

Running = tuple[str, str, bool]


@dataclass
class GceQuotas:
    """`limits` are by metric; those of regions are the same in all regions, and what is missing is not limited.
    `machines` is what a zone knows, `running` are (zone, type with what is attached, whether spot) of all that runs."""

    machines: Callable[[str], list[GcpMachine]]
    running: Callable[[], Iterable[Running]]
    limits: dict[str, int] = field(default_factory=dict)

    def rows(self, region: str = "") -> list[dict[str, Any]]:
        """As `regions.list` shows them; without a region, as `projects.get` does."""
        return [
            {"metric": metric, "limit": float(limit), "usage": float(self._used(metric, region, self.running()))}
            for metric, limit in self.limits.items()
            if (metric in OF_PROJECT) == (not region)
        ]

    def exceeded(self, new: list[Running]) -> str:
        """The message that refuses these machines, all in one zone; "" if there is room."""
        region = new[0][0].rpartition("-")[0]
        for metric, limit in self.limits.items():
            where = "" if metric in OF_PROJECT else region
            more = self._used(metric, where, new)
            if more and self._used(metric, where, self.running()) + more > limit:
                return f"Quota '{metric}' exceeded.  Limit: {limit}.0 {f'in region {where}' if where else 'globally'}."
        return ""

    def _used(self, metric: str, region: str, machines: Iterable[Running]) -> int:
        return sum(
            count
            for zone, kind, spot in machines
            if not region or zone.rpartition("-")[0] == region
            for counted, count in self._counts(zone, kind, spot)
            if counted == metric
        )

    def _counts(self, zone: str, kind: str, spot: bool) -> Iterator[tuple[str, int]]:
        shape, _, cards = kind.partition("+")
        machine = next(each for each in self.machines(zone) if each.name == shape)
        count, _, card = cards.partition("x") if cards else (machine.gpu_count, "", machine.accelerator)
        family = shape.partition("-")[0].upper()
        own = family in FAMILIES or f"{family}_CPUS" in self.limits
        preemptible = spot and self.limits.get("PREEMPTIBLE_CPUS")
        yield "PREEMPTIBLE_CPUS" if preemptible else f"{family}_CPUS" if own else "CPUS", machine.vcpu
        yield "CPUS_ALL_REGIONS", machine.vcpu
        if card:
            name = f"NVIDIA_{card.removeprefix('nvidia-').removeprefix('tesla-').replace('-', '_').upper()}_GPUS"
            yield f"PREEMPTIBLE_{name}" if spot and self.limits.get(f"PREEMPTIBLE_{name}") else name, int(count)
            yield "GPUS_ALL_REGIONS", int(count)
