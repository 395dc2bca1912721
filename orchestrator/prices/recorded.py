"""Recorded tables: recorded prices from tables into the store, with what is wrong with them.

Good rows count whatever else is in a file; bad ones are counted and told. The same files again change nothing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from orchestrator.errors import NotFoundError, Problem, UsageError
from orchestrator.prices.columns import BadField, PriceRow, layout
from orchestrator.prices.files import SUFFIXES, columns_of, is_table, rows_of
from orchestrator.prices.history import judged
from orchestrator.prices.views import ImportedFile, PriceImport
from orchestrator.store import Store
from providers.collect.facts import Flag
from providers.offer import Offer, provider_of
from providers.tables import MAX_ROWS

SOURCE = "import"
TOLD = 20  # problems
MAX_PRICES = 2 * MAX_ROWS  # in memory at a time, some 300 bytes each
_OFFERS = 500  # in one transaction
_USUAL = 0.95  # of a file's steps are no longer than the usual one
_REPEATS = 0.05  # a file where fewer rows repeat the price before has only changes

Progress = Callable[[str, int, int | None], None]


@dataclass(slots=True)
class _Read:
    """What one file held."""

    path: Path
    rows: int = 0
    prices: list[PriceRow] = field(default_factory=list)
    bad: list[Problem] = field(default_factory=list)
    bad_rows: int = 0
    skipped: str = ""


def import_prices(
    store: Store,
    paths: Sequence[Path],
    *,
    provider: str = "",
    at_ms: int | None = None,
    now_ms: int | None = None,
    reserved: Collection[str] = (),
    progress: Progress = lambda _text, _done, _total: None,
) -> PriceImport:
    """Read these files, and every table in these folders, as one history.

    `provider` and `at_ms` stand in where a file does not tell; a real price dated after `now_ms` is a bad row. Of
    `reserved` providers, where machines are rented and booked, only what is older than all that is known of an offer
    counts: since then their own sources tell, and the books follow them. In a folder, tables that are no prices are
    skipped and named.

    Raises NotFoundError, UsageError, MissingExtraError, StoreError (the offers before it are stored).
    """
    files: list[_Read] = []
    for path, alone in _tables(paths):
        files.append(_read(path, provider, at_ms, now_ms, alone))
        if sum(len(file.prices) for file in files) > MAX_PRICES:
            raise UsageError(f"these tables hold more than {MAX_PRICES} prices", hint="import fewer of them at a time")
    rows_of_offer: dict[str, list[PriceRow]] = defaultdict(list)
    for file in files:
        for row in file.prices:
            rows_of_offer[row.point.offer_id].append(row)
    past = judged(row for file in files for row in file.prices)
    file_of = {id(row): file for file in files for row in file.prices}
    flagged: dict[int, Counter[str]] = defaultdict(Counter)
    names = sorted(past)
    new_prices = new_flags = new_offers = 0
    for start in range(0, len(names), _OFFERS):
        part = names[start : start + _OFFERS]
        for name in part:
            for each in past[name].held:
                flagged[id(file_of[id(each.row)])][each.flagged.flag] += 1
        with store.write() as tx:
            booked = [name for name in part if provider_of(name) in reserved]
            until_ms = dict.fromkeys(booked, 0) | tx.first_prices_ms(booked)
            new_offers += tx.add_past_offers(SOURCE, [_best(rows_of_offer[name]) for name in part])
            due = []
            for row in (row for name in part for row in past[name].payable):
                if row.point.effective_at_ms >= until_ms.get(row.point.offer_id, math.inf):
                    flagged[id(file_of[id(row)])][Flag.NOT_ITS_OWN.value] += 1
                else:
                    due.append(row.point)
            new_prices += tx.add_prices(due)
            held = [
                (each.flagged, each.row.offer.region, each.opened_ms, each.cleared_ms)
                for name in part
                for each in past[name].held
                if name not in until_ms
            ]
            new_flags += tx.add_past_flags(SOURCE, held)
        progress("series", start + len(part), len(names))
    return PriceImport(
        files=tuple(_told(file, flagged[id(file)]) for file in files),
        series=len(names),
        new_prices=new_prices,
        new_flags=new_flags,
        new_offers=new_offers,
        problems=tuple(str(problem) for file in files for problem in file.bad)[:TOLD],
    )


def _tables(paths: Iterable[Path]) -> list[tuple[Path, bool]]:
    """Files to read, and whether each was named itself."""
    found = []
    for path in paths:
        if path.is_dir():
            inside = [(each, False) for each in sorted(path.iterdir()) if is_table(each)]
            if not inside:
                raise NotFoundError(f"{path} holds no table", hint=f"tables end with one of {', '.join(SUFFIXES)}")
            found += inside
        elif not path.exists():
            raise NotFoundError(f"there is no file {path}", hint="name a table of prices or a folder of them")
        else:
            found.append((path, True))
    return found


def _read(path: Path, provider: str, at_ms: int | None, now_ms: int | None, alone: bool) -> _Read:
    read = _Read(path)
    try:
        found = layout(columns_of(path), name=path.name, provider=provider, at_ms=at_ms)
    except UsageError as error:
        if alone:
            raise
        read.skipped = f"{error} ({error.hint})"
        return read
    if found is None:
        if alone:
            raise UsageError(
                f"{path} holds no prices of machines",
                hint="its first line must name instance_type (or gpu and gpu_count), a time and a price: see "
                "docs/price-history.md",
            )
        read.skipped = "no prices of machines"
        return read
    line = 0
    try:
        for line, row in rows_of(path, found.used):
            read.rows += 1
            try:
                prices = list(found.read(line, row))
                if now_ms is not None:
                    _require_past(prices, now_ms)
                read.prices.extend(prices)
            except BadField as bad:
                read.bad_rows += 1
                if len(read.bad) < TOLD:
                    read.bad.append(Problem(str(path), line, 1, bad.field, str(bad), "correct it and import again"))
    except UsageError as error:
        if not read.prices:
            raise
        read.bad_rows += 1
        read.bad.append(Problem(str(path), line, 1, "", f"after this line: {error}", error.hint))
    return read


def _require_past(rows: Iterable[PriceRow], now_ms: int) -> None:
    """A simulated market has a time of its own. Raises BadField."""
    if any(row.point.effective_at_ms > now_ms and not row.offer.simulated for row in rows):
        raise BadField("effective_at", "is in the future")


def _best(rows: Sequence[PriceRow]) -> Offer:
    """The offer as the row tells it that knows most."""
    return max((row.offer for row in rows), key=lambda offer: (offer.gpu is not None, offer.gpu_count, offer.vcpu))


def _told(file: _Read, flagged: Counter[str]) -> ImportedFile:
    series: dict[str, list[PriceRow]] = defaultdict(list)
    for row in file.prices:
        series[row.offer.id].append(row)
    instants = [row.point.observed_at_ms for row in file.prices]
    return ImportedFile(
        path=str(file.path),
        rows=file.rows,
        series=len(series),
        first_ms=min(instants, default=None),
        last_ms=max(instants, default=None),
        gaps=_gaps(list(series.values())),
        flagged=dict(sorted(flagged.items())),
        bad_rows=file.bad_rows,
        skipped=file.skipped,
    )


def _gaps(series: Sequence[list[PriceRow]]) -> int | None:
    """Silences longer than three usual steps; None for a table of changes only, where a silence is no gap."""
    steps = []
    lines, changed = set(), set()
    for each in series:
        each.sort(key=lambda row: row.point.observed_at_ms)
        for before, row in pairwise(each):
            steps.append(row.point.observed_at_ms - before.point.observed_at_ms)
            lines.add(row.line)
            if row.point.nano_usd_per_hour != before.point.nano_usd_per_hour:
                changed.add(row.line)
    if not steps or len(lines - changed) < _REPEATS * len(lines):
        return None
    usual = sorted(steps)[int(_USUAL * (len(steps) - 1))]
    return sum(step > 3 * usual for step in steps)
