"""What the services of the catalogue answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class CloudRow:
    """What is known of one provider. Ages are of its newest and oldest price, in days."""

    provider: str
    offers: int
    spot: int
    regions: int
    instance_types: int
    gpus: tuple[str, ...]
    newest_days: float
    oldest_days: float


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A publisher and its list. `offers` and `flagged` count the prices taken from it; dates are days (ISO)."""

    id: str
    publisher: str
    url: str
    licence: str
    taken: str
    offers: int
    flagged: int
    newest: str
    oldest: str
    age_days: float


@dataclass(frozen=True, slots=True)
class FlaggedRow:
    """Prices of a provider that are no offers, and why not."""

    provider: str
    flag: str
    reason: str
    prices: int


@dataclass(frozen=True, slots=True)
class AcceleratorRow:
    """What an accelerator that Tradewind's trainers cannot use yet costs at a provider, per chip and hour: the least
    anywhere there, on demand and as spot (None: not known). `newest` is a day (ISO)."""

    accelerator: str
    provider: str
    instance_types: tuple[str, ...]
    regions: tuple[str, ...]
    memory_gb: float
    nano_usd_per_chip_hour: int | None
    spot_nano_usd_per_chip_hour: int | None
    newest: str


@dataclass(frozen=True, slots=True)
class CatalogView:
    """`version` is that of the whole, its `date` the day on which it was compiled; `installed`: it did not come with
    Tradewind, but by `catalog update`. `damage` is why one that was installed is not used."""

    kind: ClassVar[str] = "catalog"

    at_ms: int
    version: str
    date: str
    installed: bool
    damage: tuple[str, ...]
    clouds: tuple[CloudRow, ...]
    flagged: tuple[FlaggedRow, ...]
    sources: tuple[SourceRow, ...]
    not_usable: tuple[AcceleratorRow, ...]


@dataclass(frozen=True, slots=True)
class CatalogUpdate:
    """What came of an update: the catalogue in force now, with the number of its offers, and the one before."""

    kind: ClassVar[str] = "catalog-update"

    source: str
    version: str
    offers: int
    version_before: str
    offers_before: int
    changed: bool


@dataclass(frozen=True, slots=True)
class CatalogFinding:
    """Something wrong: 1-based line (0: the whole file), field ("": the whole line), what, and the remedy."""

    file: str
    line: int
    field: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CatalogVerdict:
    """`checked` counts the prices that were looked at, flagged ones included."""

    kind: ClassVar[str] = "catalog-verify"

    path: str
    checked: int
    findings: tuple[CatalogFinding, ...]
