"""Prices of accelerators that Tradewind's trainers cannot use yet (TPUs, Trainium).

They are shown for comparison and never offered, so they are not among the GPUs of providers.hardware.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from providers.catalog.files import Finding, Report, day_ms, label, lines, number
from providers.catalog.rows import CAPACITIES
from providers.money import usd

COLUMNS = (
    *("provider", "region", "zone", "instance_type", "accelerator", "chips", "memory_gb", "capacity", "usd_per_hour"),
    *("date", "source"),
)
MOST_USD_PER_HOUR = 10_000


class AcceleratorPrice(NamedTuple):
    """The price per hour of a machine or slice of chips; `memory_gb` is per chip (10^9 bytes), `nano_usd` per machine
    or slice.
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    accelerator: str
    chips: int
    memory_gb: float
    capacity: str
    nano_usd: int
    date: str
    source: str
    file: str
    line: int

    @property
    def spot(self) -> bool:
        """True for spot capacity."""
        return self.capacity == "spot"


def read_accelerators(path: Path, sources: Container[str], report: Report) -> list[AcceleratorPrice]:
    """The valid rows of a file. Invalid ones are reported as findings."""
    found = []
    for line, fields in lines(path, COLUMNS, report):
        chips, memory, price = (number(fields[name]) for name in ("chips", "memory_gb", "usd_per_hour"))
        wrong = {
            "chips": chips is None or not 1 <= chips <= 10_000 or chips != int(chips),
            "memory_gb": memory is None or not 0 < memory <= 10_000,
            "usd_per_hour": price is None or not 0 < price <= MOST_USD_PER_HOUR,
            "capacity": fields["capacity"] not in CAPACITIES,
            "date": day_ms(fields["date"]) is None,
            "source": fields["source"] not in sources,
            **{name: not fields[name].strip() for name in ("provider", "region", "instance_type", "accelerator")},
        }
        for field in (name for name, bad in wrong.items() if bad):
            remedy = "write the publisher's value (docs/catalog.md), or remove the line"
            report(Finding(label(path), line, field, f'is "{fields[field]}"', remedy))
        if any(wrong.values()) or chips is None or memory is None:
            continue
        found.append(
            AcceleratorPrice(
                fields["provider"],
                fields["region"],
                fields["zone"],
                fields["instance_type"],
                fields["accelerator"],
                int(chips),
                memory,
                fields["capacity"],
                usd(fields["usd_per_hour"]),
                fields["date"],
                fields["source"],
                label(path),
                line,
            )
        )
    return found


def normalized_name(name: str) -> str:
    """A name without case and separators, so that `tpu v5e`, `TPU-v5e` and `tpu_v5e` are equal."""
    return "".join(character for character in name.casefold() if character.isalnum())
