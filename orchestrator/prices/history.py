"""Checks a recorded price history: compares each price with those in effect at its time, and determines how long flags
lasted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.prices.columns import PriceRow
from orchestrator.prices.sink import stored
from orchestrator.store import NewFlag
from providers.collect import facts
from providers.collect.facts import Flag
from providers.collect.judge import Judge

LISTS_PHANTOMS = frozenset({"gcp"})
"""Providers that also list prices for hardware that does not exist there: only offers known to exist count."""

Kind = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class FlaggedPeriod:
    """A flag, and the period (ms) in which it applied."""

    row: PriceRow
    flagged: NewFlag
    opened_ms: int
    cleared_ms: int


@dataclass(frozen=True, slots=True)
class OfferHistory:
    """An offer's usable prices in order of time, and the periods in which prices were flagged."""

    payable: tuple[PriceRow, ...]
    flagged: tuple[FlaggedPeriod, ...]


def judged(rows: Iterable[PriceRow]) -> dict[str, OfferHistory]:
    """Check the rows of one import, by offer id. One row per offer and time counts."""
    of_kind: dict[Kind, list[PriceRow]] = defaultdict(list)
    offered: dict[Kind, bool] = {}
    for row in rows:
        kind = _kind(row)
        of_kind[kind].append(row)
        if row.offered is not None:
            offered[kind] = row.offered or offered.get(kind, False)
    found: dict[str, OfferHistory] = {}
    for kind, reported in of_kind.items():
        found.update(_of_kind(reported, offered.get(kind)))
    return found


def _of_kind(rows: Sequence[PriceRow], offered: bool | None) -> dict[str, OfferHistory]:
    series: dict[str, list[PriceRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.point.effective_at_ms, row.point.observed_at_ms)):
        before = series[row.point.offer_id][-1:]
        if not before or before[0].point.effective_at_ms < row.point.effective_at_ms:
            series[row.point.offer_id].append(row)
    phantoms = {
        id(row.point): phantom
        for reported in series.values()
        for row in reported
        if (phantom := _phantom(row, offered)) is not None
    }
    real = [row for reported in series.values() for row in reported if id(row.point) not in phantoms]
    verdict = Judge().replay([row.offer for row in real], [row.point for row in real])
    payable = {id(point) for point in verdict.payable}
    reasons = phantoms | {id(each.point): each for each in verdict.flagged}
    return {name: _history(reported, payable, reasons) for name, reported in series.items()}


def _history(reported: Sequence[PriceRow], payable: set[int], reasons: dict[int, facts.FlaggedFinding]) -> OfferHistory:
    flagged = []
    for place, row in enumerate(reported):
        if (reason := reasons.get(id(row.point))) is not None:
            following = reported[min(place + 1, len(reported) - 1)]
            # The last flag ends at once, because an import does not flag current prices.
            flagged.append(FlaggedPeriod(row, stored(reason), row.point.observed_at_ms, following.point.observed_at_ms))
    return OfferHistory(tuple(row for row in reported if id(row.point) in payable), tuple(flagged))


def _phantom(row: PriceRow, of_kind: bool | None) -> facts.FlaggedFinding | None:
    offered = of_kind if row.offered is None else row.offered
    where = f"{row.offer.instance_type} in {row.offer.region}"
    if offered is False:
        detail = f"{where} is listed but not offered"
    elif offered is None and row.offer.provider in LISTS_PHANTOMS:
        detail = f"{where} is listed but not known to be offered"
    else:
        return None
    return facts.FlaggedFinding(Flag.NO_HARDWARE, row.offer.id, detail, row.offer, row.point)


def _kind(row: PriceRow) -> Kind:
    return row.offer.provider, row.offer.region, row.offer.instance_type
