"""Past spot prices and preemptions of GCP: AdviceClient.capacity_history, for projects that have access to it.

Not every project has access; a refusal affects only this source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from providers.collect.facts import Finding, Flag, PollResult, Signal, gather, instant_ms
from providers.gcp.prices.list_prices import machines_in, offer_of
from providers.gcp.prices.skus import NANO, Machine
from providers.gcp.session import Connections, listed_regions, to_provider_error
from providers.offer import CapacityType
from providers.price import PricePoint

SOURCE = "GCP capacityHistory"


class CapacityHistory:
    """Source `gcp-history`. Makes one call per zone and machine type; `machine_types` restricts them."""

    provider = "gcp"

    def __init__(
        self,
        *,
        name: str = "gcp-history",
        regions: Sequence[str] = (),
        machine_types: Sequence[str] = (),
        project: str | None = None,
        compute: str | None = None,
        call_s: float = 30.0,
        connections: Connections | None = None,
    ) -> None:
        self.name = name
        self._only = tuple(regions)
        self._machine_types = frozenset(machine_types)
        self._connections = connections or Connections(project, compute, call_s)

    def regions(self) -> Sequence[str]:
        """The configured regions, else the project's. Raises ProviderError if they cannot be listed."""
        return self._only or listed_regions(self._connections)

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """Past prices and preemption rates of all zones of a region."""
        return gather(region, lambda finding: self._read(finding, now_ms), to_provider_error)

    def _read(self, finding: Finding, now_ms: int) -> None:
        for zone in self._connections.zones_by_region().get(finding.region, []):
            for machine in machines_in(self._connections, zone, finding):
                attached = "+" in machine.name
                wanted = not self._machine_types or machine.name in self._machine_types
                if wanted and not attached:
                    self._ask(finding, zone, machine, now_ms)

    def _ask(self, finding: Finding, zone: str, machine: Machine, now_ms: int) -> None:
        answer = self._connections.client("AdviceClient").capacity_history(
            request={
                "project": self._connections.project,
                "region": finding.region,
                "capacity_history_request_resource": {
                    "types": ["PRICE", "PREEMPTION"],
                    "instance_properties": {
                        "machine_type": machine.name,
                        "scheduling": {"provisioning_model": "SPOT"},
                    },
                    "location_policy": {"location": f"zones/{zone}"},
                },
            },
            timeout=self._connections.call_s,
        )
        finding.page(len(answer.price_history) + len(answer.preemption_history))
        for record in _dated(finding, machine.name, answer.preemption_history):
            at_ms, rate = _start_ms(record), record.preemption_rate
            what = ("preemption_fraction", "gcp", finding.region, zone, machine.name)
            finding.signal(Signal(*what, rate, rate, at_ms, now_ms, SOURCE))
        self._add_prices(finding, zone, machine, answer.price_history, now_ms)

    def _add_prices(self, finding: Finding, zone: str, machine: Machine, records: Sequence[Any], now_ms: int) -> None:
        offer = offer_of(finding.region, zone, machine, CapacityType.SPOT)
        before = None
        for record in sorted(_dated(finding, offer.id, records), key=_start_ms):
            money = record.list_price
            nano = money.units * NANO + money.nanos
            if money.currency_code != "USD":
                finding.flag(Flag.CURRENCY, offer.id, f"the price history is in {money.currency_code}", offer)
                return
            if nano <= 0 or nano == before or _start_ms(record) > now_ms:
                continue
            before = nano
            point = PricePoint(offer.id, nano, _start_ms(record), now_ms, SOURCE)
            if offer.gpu is None:
                finding.flag(Flag.UNKNOWN_GPU, offer.id, f"unknown GPU: {machine.accelerator}", offer, point)
            else:
                finding.price(offer, point)


def _dated(finding: Finding, subject: str, records: Sequence[Any]) -> list[Any]:
    """The records that have a start time; others are flagged."""
    dated = []
    for record in records:
        try:
            _start_ms(record)
        except ValueError as error:
            finding.flag(Flag.MALFORMED, subject, str(error))
            continue
        dated.append(record)
    return dated


def _start_ms(record: Any) -> int:
    return instant_ms(record.interval.start_time)
