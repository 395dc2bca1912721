"""Shows and verifies the offline catalogue."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import NotFoundError, Problem, SpecError
from orchestrator.services.catalog.views import (
    AcceleratorRow,
    CatalogFinding,
    CatalogVerdict,
    CatalogView,
    CloudRow,
    FlaggedRow,
    SourceRow,
)
from providers.catalog import (
    AcceleratorPrice,
    Catalog,
    CatalogError,
    Finding,
    Flag,
    PriceRow,
    age_days,
    damage,
    load,
)
from providers.catalog import verify as examine
from providers.catalog import verify_own as examine_own
from providers.catalog.files import DATA, day_ms
from providers.catalog.manifest import verify_files
from providers.offer import Offer
from providers.price import PricePoint


def show(now_ms: int, path: Path | None = None) -> CatalogView:
    """The catalogue's contents, with the rows of the user's own file `path` if given. Raises SpecError."""
    catalog = _catalog(path)
    flagged = [each.row for each in catalog.flagged()]
    kinds = Counter((row.provider, row.flag) for row in flagged)
    return CatalogView(
        at_ms=now_ms,
        version=catalog.version,
        date=catalog.date,
        installed=catalog.folder != DATA,
        damage=tuple(map(str, damage())),
        clouds=_clouds(catalog, now_ms),
        flagged=tuple(FlaggedRow(*key, Flag(key[1]).reason, count) for key, count in sorted(kinds.items())),
        sources=_sources(catalog, flagged, now_ms),
        not_usable=not_usable(catalog),
    )


def verify(now_ms: int, path: Path | None = None) -> CatalogVerdict:
    """All errors of the current catalogue, beginning with deviations from its manifest, or of the user's own file
    `path`. Raises NotFoundError."""
    if path is not None and not path.is_file():
        raise NotFoundError(f"{path} is not a file", hint="give a CSV file in the format of docs/catalog.md")
    if path is None:
        folder = load().folder
        verdict, altered = examine(now_ms, folder), (*damage(), *verify_files(folder))
    else:
        verdict, altered = examine_own(path, load(), now_ms), ()
    found = (*altered, *verdict.findings)
    findings = tuple(CatalogFinding(f.file, f.line, f.field, f.message, f.remedy) for f in found)
    return CatalogVerdict("" if path is None else str(path), verdict.checked, findings)


def refuse(findings: Sequence[CatalogFinding | Finding]) -> None:
    """Raises SpecError with all findings, if there are any."""
    if findings:
        raise SpecError([Problem(f.file, f.line, 1, f.field, f.message, f.remedy) for f in findings])


def _catalog(path: Path | None) -> Catalog:
    try:
        return load() if path is None else load().extended(path)
    except CatalogError as error:
        refuse(error.findings)
        raise


def not_usable(catalog: Catalog) -> tuple[AcceleratorRow, ...]:
    """Accelerators with prices that Tradewind's trainers cannot use yet. Raises CatalogError."""
    of: dict[tuple[str, str], list[AcceleratorPrice]] = defaultdict(list)
    for price in catalog.accelerators():
        of[price.accelerator, price.provider].append(price)
    return tuple(
        AcceleratorRow(
            accelerator=accelerator,
            provider=provider,
            instance_types=tuple(dict.fromkeys(price.instance_type for price in prices)),
            regions=tuple(sorted({price.region for price in prices})),
            memory_gb=prices[0].memory_gb,
            nano_usd_per_chip_hour=min((p.nano_usd // p.chips for p in prices if not p.spot), default=None),
            spot_nano_usd_per_chip_hour=min((p.nano_usd // p.chips for p in prices if p.spot), default=None),
            newest=max(price.date for price in prices),
        )
        for (accelerator, provider), prices in sorted(of.items())
    )


def _clouds(catalog: Catalog, now_ms: int) -> tuple[CloudRow, ...]:
    priced: dict[str, list[tuple[Offer, PricePoint]]] = defaultdict(list)
    for offer, price in zip(catalog.offers(), catalog.prices(), strict=True):
        priced[offer.provider].append((offer, price))
    rows = []
    for provider, both in priced.items():
        offers = [offer for offer, _ in both]
        instants = [price.effective_at_ms for _, price in both]
        rows.append(
            CloudRow(
                provider=provider,
                offers=len(offers),
                spot=sum(offer.spot for offer in offers),
                regions=len({offer.region for offer in offers}),
                instance_types=len({offer.instance_type for offer in offers}),
                gpus=tuple(sorted({offer.gpu for offer in offers if offer.gpu is not None})),
                newest_days=age_days(max(instants), now_ms),
                oldest_days=age_days(min(instants), now_ms),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.offers, row.provider)))


def _sources(catalog: Catalog, flagged: Sequence[PriceRow], now_ms: int) -> tuple[SourceRow, ...]:
    of: dict[str, list[PriceRow]] = defaultdict(list)
    for row in (*catalog.rows, *flagged):
        of[row.source].append(row)
    kept = Counter(row.source for row in flagged)
    rows = []
    for source in catalog.sources():
        days = sorted(row.date for row in of[source.id]) or [source.valid_on]
        rows.append(
            SourceRow(
                id=source.id,
                publisher=source.publisher,
                url=source.url,
                licence=source.licence,
                taken=source.taken,
                offers=len(of[source.id]) - kept[source.id],
                flagged=kept[source.id],
                newest=days[-1],
                oldest=days[0],
                age_days=age_days(day_ms(days[-1]) or 0, now_ms),
            )
        )
    return tuple(rows)
