"""Recorded prices: imports price tables into the store, and reports their errors.

Valid rows are imported even if others are invalid; invalid rows are counted and reported. Importing the same files
again changes nothing.
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
MAX_PROBLEMS = 20  # reported
MAX_PRICES = 2 * MAX_ROWS  # in memory at once, about 300 bytes each
_OFFERS = 500  # per transaction
_USUAL = 0.95  # the quantile of a file's time steps that counts as the usual step
_REPEATS = 0.05  # if fewer rows repeat the previous price, the file lists only changes

Progress = Callable[[str, int, int | None], None]


@dataclass(slots=True)
class _Read:
    """The content of one file."""

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

    `provider` and `at_ms` (ms) are used where a file does not have them; a real price dated after `now_ms` is a bad
    row. For `reserved` providers, where machines are rented and booked, only prices older than all known prices of an
    offer are imported: later prices come from the providers' own sources, on which the ledger is based. In folders,
    tables without prices are skipped and listed.

    Raises NotFoundError, UsageError, MissingExtraError, StoreError (the offers before it are stored).
    """
    files: list[_Read] = []
    for path, alone in _tables(paths):
        files.append(_read(path, provider, at_ms, now_ms, alone))
        if sum(len(file.prices) for file in files) > MAX_PRICES:
            raise UsageError(f"these tables have more than {MAX_PRICES} prices", hint="import fewer files at a time")
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
            for each in past[name].flagged:
                flagged[id(file_of[id(each.row)])][each.flagged.flag] += 1
        with store.write() as tx:
            booked = [name for name in part if provider_of(name) in reserved]
            until_ms = dict.fromkeys(booked, 0) | tx.first_prices_ms(booked)
            new_offers += tx.add_past_offers(SOURCE, [_best(rows_of_offer[name]) for name in part])
            payable = []
            for row in (row for name in part for row in past[name].payable):
                if row.point.effective_at_ms >= until_ms.get(row.point.offer_id, math.inf):
                    flagged[id(file_of[id(row)])][Flag.NOT_ITS_OWN.value] += 1
                else:
                    payable.append(row.point)
            new_prices += tx.add_prices(payable)
            held = [
                (each.flagged, each.row.offer.region, each.opened_ms, each.cleared_ms)
                for name in part
                for each in past[name].flagged
                if name not in until_ms
            ]
            new_flags += tx.add_past_flags(SOURCE, held)
        progress("series", start + len(part), len(names))
    return PriceImport(
        files=tuple(_summary(file, flagged[id(file)]) for file in files),
        series=len(names),
        new_prices=new_prices,
        new_flags=new_flags,
        new_offers=new_offers,
        problems=tuple(str(problem) for file in files for problem in file.bad)[:MAX_PROBLEMS],
    )


def _tables(paths: Iterable[Path]) -> list[tuple[Path, bool]]:
    """The files to read, and whether each was named by the user."""
    found = []
    for path in paths:
        if path.is_dir():
            inside = [(each, False) for each in sorted(path.iterdir()) if is_table(each)]
            if not inside:
                raise NotFoundError(f"{path} has no tables", hint=f"table files end with {', '.join(SUFFIXES)}")
            found += inside
        elif not path.exists():
            raise NotFoundError(f"{path} does not exist", hint="name a price table or a folder of price tables")
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
                f"{path} has no machine prices",
                hint="its first line must have instance_type (or gpu and gpu_count), a time and a price: see "
                "docs/price-history.md",
            )
        read.skipped = "no machine prices"
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
                if len(read.bad) < MAX_PROBLEMS:
                    read.bad.append(Problem(str(path), line, 1, bad.field, str(bad), "correct it and import again"))
    except UsageError as error:
        if not read.prices:
            raise
        read.bad_rows += 1
        read.bad.append(Problem(str(path), line, 1, "", f"after this line: {error}", error.hint))
    return read


def _require_past(rows: Iterable[PriceRow], now_ms: int) -> None:
    """Raises BadField for real prices in the future. A simulated market has its own time."""
    if any(row.point.effective_at_ms > now_ms and not row.offer.simulated for row in rows):
        raise BadField("effective_at", "is in the future")


def _best(rows: Sequence[PriceRow]) -> Offer:
    """The offer from the row with the most details."""
    return max((row.offer for row in rows), key=lambda offer: (offer.gpu is not None, offer.gpu_count, offer.vcpu))


def _summary(file: _Read, flagged: Counter[str]) -> ImportedFile:
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
    """The number of gaps longer than three usual steps; None if the table only lists changes."""
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
