"""Histories: the three recorded markets of the shared data as Records: AWS 2020, AWS and Azure 2020, GCP 2024 to 2026.

Prices are carried forward from each change. Missing data are filled in as follows, equally for all policies. AWS
on-demand prices are those of us-east-1 in 2022, in every region (they did not change in between). Azure on-demand
prices are those of 2023. For GCP, only offers whose hardware was there (`offered_known` is true) are listed: GCP also
publishes prices for regions without it. Azure's regions have their current names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.arena.replay.record import Change, Record
from orchestrator.arena.traces import refused
from orchestrator.errors import MissingExtraError
from providers.money import usd
from providers.offer import CapacityType, Offer

_AZURE = {"us_east": "eastus", "us_south_central": "southcentralus", "us_north_central": "northcentralus"}
_GPU = {"A100": "A100-40GB"}
_Prices = dict[Offer, list[Change]]


@dataclass(frozen=True, slots=True)
class History:
    """A market that can be replayed: the GPUs that jobs may use, and their number per machine."""

    name: str
    gpus: tuple[str, ...]
    counts: tuple[int, ...]
    read: Callable[[Path], Record]


def aws(folder: Path) -> Record:
    """AWS, 2020-01-03 to 03-16: K80 and V100, 1 and 8 of them, 14 to 17 zones of 6 regions."""
    return Record.of("aws-2020", _aws(folder, (1, 8)), _ms("2020-01-03"), _ms("2020-03-16"))


def aws_azure(folder: Path) -> Record:
    """AWS and Azure, 2020-02-24 to 03-16: K80, P100 and V100, 1 and 4 of them."""
    prices = _aws(folder, (1, 4)) | _azure(folder, (1, 4))
    return Record.of("aws-azure-2020", prices, _ms("2020-02-25"), _ms("2020-03-16"))


def gcp(folder: Path) -> Record:
    """GCP, 2024-01 to 2026-06: A100 and H100, 1 and 8 of them."""
    prices: _Prices = defaultdict(list)
    for row in _parquet(folder / "gcp_gpu_prices_2022_2026.parquet"):
        if row["offered_known"] is not True or int(row["gpus"]) not in (1, 8):
            continue
        for capacity, key in ((CapacityType.SPOT, "spot_usd_h"), (CapacityType.ON_DEMAND, "ondemand_usd_h")):
            if row[key]:
                offer = _offer(
                    "gcp",
                    row["region"],
                    "",
                    row["instance_type"],
                    _GPU.get(row["gpu"], row["gpu"]),
                    int(row["gpus"]),
                    capacity,
                )
                prices[offer].append((_ms(row["observed_at"]), usd(float(row[key]))))
    return Record.of("gcp-2024", prices, _ms("2024-01-01"), _ms("2026-06-01"))


HISTORIES: Mapping[str, History] = {
    each.name: each
    for each in (
        History("aws-2020", ("K80", "V100"), (1, 8), aws),
        History("aws-azure-2020", ("K80", "P100", "V100"), (1, 4), aws_azure),
        History("gcp-2024", ("A100-40GB", "H100"), (1, 8), gcp),
    )
}


def _aws(folder: Path, counts: tuple[int, ...]) -> _Prices:
    prices: _Prices = defaultdict(list)
    places: dict[str, set[str]] = defaultdict(set)
    gpus: dict[str, tuple[str, int]] = {}
    listed: dict[str, float] = {}
    for row in _events(folder):
        kind = row["instance_type"]
        if row["cloud"] != "aws" or int(row["gpus"]) not in counts:
            continue
        if row["market"] == "spot" and "2020" in row["source"]:
            gpus[kind] = (row["gpu"], int(row["gpus"]))
            places[kind].add(row["region"])
            offer = _offer("aws", row["region"], row["zone"], kind, *gpus[kind], CapacityType.SPOT)
            prices[offer].append((_ms(row["observed_at"]), usd(float(row["usd_h"]))))
        elif row["market"] == "ondemand":
            listed.setdefault(kind, float(row["usd_h"]))
    for kind, regions in places.items():
        for region in regions:
            on_demand = _offer("aws", region, "", kind, *gpus[kind], CapacityType.ON_DEMAND)
            prices[on_demand].append((0, usd(listed[kind])))
    return prices


def _azure(folder: Path, counts: tuple[int, ...]) -> _Prices:
    prices: _Prices = defaultdict(list)
    events = [row for row in _events(folder) if row["cloud"] == "azure" and int(row["gpus"]) in counts]
    listed = {
        (row["region"], row["instance_type"]): float(row["usd_h"])
        for row in reversed(events)
        if row["market"] == "ondemand"
    }
    for row in events:
        if row["market"] == "spot" and "2020" in row["source"]:
            region, kind = _AZURE[row["region"]], "Standard_" + row["instance_type"].replace(" ", "_")
            gpus = row["gpu"], int(row["gpus"])
            spot = _offer("azure", region, "", kind, *gpus, CapacityType.SPOT)
            prices[spot].append((_ms(row["observed_at"]), usd(float(row["usd_h"]))))
            if (region, kind) in listed:
                on_demand = _offer("azure", region, "", kind, *gpus, CapacityType.ON_DEMAND)
                prices[on_demand] = [(0, usd(listed[region, kind]))]
    return prices


def _offer(provider: str, region: str, zone: str, kind: str, gpu: str, gpus: int, capacity: CapacityType) -> Offer:
    return Offer(provider, region, zone, kind, gpu, gpus, 8 * gpus, 60_000_000_000 * gpus, capacity)


def _events(folder: Path) -> Iterator[Mapping[str, Any]]:
    return _parquet(folder / "market_events.parquet")


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.exists():
        raise refused(path, 0, "market", "the file does not exist", "name the folder with the recorded markets")
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "analysis") from error
    yield from pq.read_table(path).to_pylist()


def _ms(at: datetime | str) -> int:
    when = datetime.fromisoformat(at) if isinstance(at, str) else at
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
