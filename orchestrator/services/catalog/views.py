"""Views of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class CloudRow:
    """One provider in the catalogue. Ages are those of its newest and oldest price, in days."""

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
    """A publisher's list. `offers` and `flagged` count the prices taken from it; dates are ISO days."""

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
    """Prices of a provider that are not offered, and the reason."""

    provider: str
    flag: str
    reason: str
    prices: int


@dataclass(frozen=True, slots=True)
class AcceleratorRow:
    """An accelerator that Tradewind's trainers cannot use yet, with its lowest prices at a provider, on demand and
    spot, per chip and hour (None: unknown). `newest` is an ISO day."""

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
    """The catalogue. `date` is the day on which it was compiled; `installed`: it was installed by `catalog update` and
    is not the one included in Tradewind. `damage` is the reason why an installed catalogue is not used."""

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
    """The result of an update: the current and the previous catalogue, with their numbers of offers."""

    kind: ClassVar[str] = "catalog-update"

    source: str
    version: str
    offers: int
    version_before: str
    offers_before: int
    changed: bool


@dataclass(frozen=True, slots=True)
class CatalogFinding:
    """An error: 1-based line (0: the whole file), field ("": the whole line), message and remedy."""

    file: str
    line: int
    field: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CatalogVerdict:
    """The result of a verification. `checked` counts the checked prices, including flagged ones."""

    kind: ClassVar[str] = "catalog-verify"

    path: str
    checked: int
    findings: tuple[CatalogFinding, ...]
