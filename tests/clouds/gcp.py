"""GCP on loopback: the Compute API's JSON and the Billing Catalog, for the unmodified google-cloud-compute.

Instances and operations are to be added beside the lists; `forward` takes what is not served here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dateutil import zoneinfo

from tests.clouds.server import Cloud, Request, Response

GOOGLES = zoneinfo.get_zonefile_instance().get("America/Los_Angeles")


@dataclass(frozen=True)
class GcpMachine:
    name: str
    accelerator: str = ""
    gpu_count: int = 0
    vcpu: int = 12
    memory_mb: int = 85 * 1024
    ssds: int = 0
    deprecated: str = ""

    def body(self) -> dict[str, Any]:
        row: dict[str, Any] = {"name": self.name, "guestCpus": self.vcpu, "memoryMb": self.memory_mb}
        if self.accelerator:
            row["accelerators"] = [{"guestAcceleratorType": self.accelerator, "guestAcceleratorCount": self.gpu_count}]
        if self.ssds:
            row["bundledLocalSsds"] = {"defaultInterface": "NVME", "partitionCount": self.ssds}
        if self.deprecated:
            row["deprecated"] = {"state": self.deprecated}
        return row


@dataclass
class GcpZone:
    machines: list[GcpMachine] = field(default_factory=list)
    cards: dict[str, int] = field(default_factory=dict)


def sku(
    description: str,
    usd: float,
    regions: list[str],
    usage: str = "OnDemand",
    family: str = "Compute",
    unit: object = None,
    currency: str = "USD",
    tiers: list[float] | None = None,
    since: str = "2026-09-01T00:00:00Z",
) -> dict[str, Any]:
    """An SKU as the catalog sends it, by the hour (of a GiB, if it is memory). `tiers` come before the price that
    counts, which is in force since `since`."""
    usual = "GiBy.h" if " Ram " in description else "h"
    rates = [
        {
            "startUsageAmount": index,
            "unitPrice": {
                "currencyCode": currency,
                "units": str(int(amount)),
                "nanos": round((amount - int(amount)) * 1e9),
            },
        }
        for index, amount in enumerate([*(tiers or []), usd])
    ]
    return {
        "name": f"services/x/skus/{description}",
        "skuId": description.replace(" ", "-"),
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": "GPU",
            "usageType": usage,
        },
        "serviceRegions": regions,
        "pricingInfo": [
            {
                "effectiveTime": since,
                "pricingExpression": {"usageUnit": usual if unit is None else unit, "tieredRates": rates},
            }
        ],
    }


@dataclass
class GcpCloud:
    """`zones` are by name; a region is what comes before the last dash. `denied` are paths' last words. With an
    `api_key`, the catalog is for those that send it, or the token `bearer`. `quotas` are those of a region;
    `quota_warning`: why they cannot be read."""

    zones: dict[str, GcpZone]
    skus: list[dict[str, Any]] = field(default_factory=list)
    page_rows: int = 2
    denied: set[str] = field(default_factory=set)
    history: dict[str, dict[str, Any]] = field(default_factory=dict)
    api_key: str = ""
    bearer: str = ""
    quotas: Callable[[str], list[dict[str, Any]]] = lambda _: []
    quota_warning: str = ""
    forward: Cloud | None = None

    def __call__(self, request: Request) -> Response:
        words = request.path.strip("/").split("/")
        last = words[-1]
        if last in self.denied:
            permission = f"compute.{last}.list" if last != "skus" else "cloudbilling.skus.list"
            return error(403, f"Required '{permission}' permission for 'projects/p'", "forbidden")
        if last == "skus":
            return self._skus(request)
        if last == "regions":
            names = sorted({name.rpartition("-")[0] for name in self.zones})
            return self._page(request, [self._region(name) for name in names])
        if last == "machineTypes":
            return self._page(request, self._machines(words[-2], request.query.get("filter", "")))
        if last == "acceleratorTypes":
            cards = self.zones[words[-2]].cards
            return self._page(
                request, [{"name": name, "maximumCardsPerInstance": most} for name, most in cards.items()]
            )
        if last == "capacityHistory":
            body = json.loads(request.body)
            place = body["locationPolicy"]["location"].rpartition("/")[2]
            key = f"{place}/{body['instanceProperties']['machineType']}"
            return Response(body=json.dumps(self.history.get(key, {})).encode())
        return self.forward(request) if self.forward else error(404, f"{request.path} is not served here", "notFound")

    def _region(self, name: str) -> dict[str, Any]:
        base = "https://www.googleapis.com/compute/v1/projects/p/zones"
        zones = [zone for zone in self.zones if zone.rpartition("-")[0] == name]
        links = [f"{base}/{zone}" for zone in zones]
        region = {"name": name, "status": "UP", "zones": links}
        if self.quota_warning:
            return {**region, "quotaStatusWarning": {"code": "UNREACHABLE", "message": self.quota_warning}}
        return {**region, "quotas": self.quotas(name)}

    def _machines(self, zone: str, wanted: str) -> list[dict[str, Any]]:
        pattern = re.fullmatch(r'name eq "(.*)"', wanted)
        machines = self.zones[zone].machines
        return [row.body() for row in machines if pattern is None or re.fullmatch(pattern.group(1), row.name)]

    def _page(self, request: Request, items: list[dict[str, Any]]) -> Response:
        first = int(request.query.get("pageToken") or 0)
        body: dict[str, Any] = {"items": items[first : first + self.page_rows]}
        if first + self.page_rows < len(items):
            body["nextPageToken"] = str(first + self.page_rows)
        return Response(body=json.dumps(body).encode())

    def _skus(self, request: Request) -> Response:
        known = self.bearer and f"Bearer {self.bearer}" in request.headers.values()
        if self.api_key and not known and request.headers.get("X-Goog-Api-Key") != self.api_key:
            return error(403, "Method doesn't allow unregistered callers", "forbidden")
        if int(request.query.get("pageSize") or 0) > 5000:
            return error(400, "Page size must not exceed 5000", "badRequest")
        first = int(request.query.get("pageToken") or 0)
        start, end = request.query.get("startTime"), request.query.get("endTime")
        skus = self.skus
        if start and end:
            last = _instant(end) - timedelta(microseconds=1)
            if len({instant.astimezone(GOOGLES).strftime("%Y-%m") for instant in (_instant(start), last)}) > 1:
                return error(400, "The time range has to be within a single calendar month", "badRequest")
            skus = [_within(sku, _instant(start), last) for sku in skus]
        body: dict[str, Any] = {"skus": skus[first : first + 7], "nextPageToken": ""}
        if first + 7 < len(skus):
            body["nextPageToken"] = str(first + 7)
        return Response(body=json.dumps(body).encode())


def error(code: int, message: str, reason: str, headers: dict[str, str] | None = None) -> Response:
    """An error as Google's REST interfaces send it."""
    body = {"error": {"code": code, "message": message, "errors": [{"message": message, "reason": reason}]}}
    return Response(code, json.dumps(body).encode(), headers=headers or {})


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _within(sku: dict[str, Any], start: datetime, last: datetime) -> dict[str, Any]:
    """The SKU with the versions that were in force at some time from `start` to `last`."""
    rows = sorted(sku["pricingInfo"], key=lambda row: _instant(row["effectiveTime"]))
    begun = [row for row in rows if _instant(row["effectiveTime"]) <= last]
    later = [row for row in begun if _instant(row["effectiveTime"]) > start]
    return {**sku, "pricingInfo": [*begun[: len(begun) - len(later)][-1:], *later]}


def a2_skus(regions: list[str]) -> list[dict[str, Any]]:
    """What an a2 machine is made of, on-demand and spot."""
    return [
        sku("A2 Instance Core running in Americas", 0.03, regions),
        sku("A2 Instance Ram running in Americas", 0.004, regions, unit="GiBy.h"),
        sku("Nvidia Tesla A100 GPU running in Americas", 2.9, regions),
        sku("Spot Preemptible A2 Instance Core running in Americas", 0.01, regions, "Preemptible"),
        sku("Spot Preemptible A2 Instance Ram running in Americas", 0.001, regions, "Preemptible", unit="GiBy.h"),
        sku("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas", 0.9, regions, "Preemptible"),
    ]


THROTTLED = error(429, "Quota exceeded for quota metric 'Read requests'", "rateLimitExceeded", {"Retry-After": "0"})
