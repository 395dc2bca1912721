"""A recorded history before the judge: each price beside what held at its time, and from when to when a flag did. Must
not know files or the store.
"""

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
"""Providers with prices for places without the hardware: there, only what is known to be offered counts."""

Kind = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """A flag with the instants from which and to which it holds."""

    row: PriceRow
    flagged: NewFlag
    opened_ms: int
    cleared_ms: int


@dataclass(frozen=True, slots=True)
class Past:
    """An offer's prices that are payable, in order of time, and what was flagged."""

    payable: tuple[PriceRow, ...]
    held: tuple[Held, ...]


def judged(rows: Iterable[PriceRow]) -> dict[str, Past]:
    """What a history comes to, by offer id: the rows of one import, of which one per offer and instant counts."""
    of_kind: dict[Kind, list[PriceRow]] = defaultdict(list)
    offered: dict[Kind, bool] = {}
    for row in rows:
        kind = _kind(row)
        of_kind[kind].append(row)
        if row.offered is not None:
            offered[kind] = row.offered or offered.get(kind, False)
    found: dict[str, Past] = {}
    for kind, reported in of_kind.items():
        found.update(_of_kind(reported, offered.get(kind)))
    return found


def _of_kind(rows: Sequence[PriceRow], offered: bool | None) -> dict[str, Past]:
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
    return {name: _past(reported, payable, reasons) for name, reported in series.items()}


def _past(reported: Sequence[PriceRow], payable: set[int], reasons: dict[int, facts.FlaggedFinding]) -> Past:
    held = []
    for place, row in enumerate(reported):
        if (reason := reasons.get(id(row.point))) is not None:
            following = reported[
                min(place + 1, len(reported) - 1)
            ]  # the last one ends at once: no import flags the present
            held.append(Held(row, stored(reason), row.point.observed_at_ms, following.point.observed_at_ms))
    return Past(tuple(row for row in reported if id(row.point) in payable), tuple(held))


def _phantom(row: PriceRow, of_kind: bool | None) -> facts.FlaggedFinding | None:
    offered = of_kind if row.offered is None else row.offered
    where = f"{row.offer.instance_type} in {row.offer.region}"
    if offered is False:
        detail = f"{where} is listed, but not offered there"
    elif offered is None and row.offer.provider in LISTS_PHANTOMS:
        detail = f"{where} is listed, but not known to be offered there"
    else:
        return None
    return facts.FlaggedFinding(Flag.NO_HARDWARE, row.offer.id, detail, row.offer, row.point)


def _kind(row: PriceRow) -> Kind:
    return row.offer.provider, row.offer.region, row.offer.instance_type
