"""Archive: exports prices, writes the monthly archive, and deletes old prices once they are in it.

The archive is one Parquet file per UTC month of `effective_at` in <state>/archive, with the columns of an export.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.config.paths import why_not_created
from orchestrator.errors import UsageError
from orchestrator.prices.columns import COLUMNS, PriceRow, layout, values_of
from orchestrator.prices.files import archived_rows, write_rows
from orchestrator.prices.views import ArchivedMonth, PriceArchive, PriceExport
from orchestrator.store import Leadership, Store
from providers.offer import Offer
from providers.price import PricePoint

DAY_MS = 86_400_000
KEEP_DAYS = 400

Priced = tuple[Offer, PricePoint]


def export(
    store: Store,
    path: Path,
    *,
    gpu: str | None = None,
    provider: str | None = None,
    from_ms: int = 0,
    to_ms: int = 2**62,
) -> PriceExport:
    """Write all price changes effective from `from_ms` to `to_ms` to a file. Raises UsageError, MissingExtraError."""
    with store.read() as tx:
        rows = (
            values_of(offer, point)
            for offer, point in tx.points_between(from_ms, to_ms)
            if gpu in (None, offer.gpu) and provider in (None, offer.provider)
        )
        written = write_rows(path, COLUMNS, rows)
    return PriceExport(str(path.absolute()), written, path.stat().st_size)


def archive(
    store: Store,
    folder: Path,
    now_ms: int,
    *,
    keep_days: int = KEEP_DAYS,
    leadership: Leadership | None = None,
) -> PriceArchive:
    """Roll up past days, archive past months, and delete what is older than `keep_days`.

    A month is deleted only as a whole, and only once its file exists. Prices that later as-of queries may need, and
    prices of offers that jobs used, are kept. `leadership` is the control plane's; None for a user. Raises UsageError,
    MissingExtraError, StoreError.
    """
    if keep_days < 31:
        raise UsageError(
            f"keep_days must be at least 31, not {keep_days}", hint="back-tests and reports need recent prices"
        )
    rolled_up = roll_up(store, now_ms, leadership)
    with store.read() as tx:
        first_ms, kept_from = tx.first_price_ms(), tx.kept_from_ms()
    this_month = month_of(now_ms)
    made: list[ArchivedMonth] = []
    if first_ms is not None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            why = why_not_created(folder, error)
            raise UsageError(f"{folder} cannot be created: {why}", hint="choose another folder") from error
        for start in _months(
            month_of(first_ms), this_month
        ):  # including deleted months, as history may be imported late
            made += _archive_month(store, folder, start)
    cut_ms = month_of(now_ms - keep_days * DAY_MS)
    prices = polls = 0
    while first_ms is not None and first_ms < cut_ms and cut_ms > kept_from:
        with store.write(leadership) as tx:
            fewer_prices, fewer_polls = tx.let_go(cut_ms)
        prices, polls = prices + fewer_prices, polls + fewer_polls
        if fewer_prices + fewer_polls == 0:
            break
    with store.read() as tx:
        return PriceArchive(tuple(made), rolled_up, prices, polls, tx.kept_from_ms())


def roll_up(store: Store, now_ms: int, leadership: Leadership | None = None) -> int:
    """Roll up every past day in short transactions. Returns the number of offers. Raises StoreError."""
    rolled_up = 0
    while True:
        with store.write(leadership) as tx:
            done = tx.roll_up(now_ms)
        rolled_up += done
        if done == 0:
            return rolled_up


def month_of(at_ms: int) -> int:
    """The start (ms) of the UTC month that contains `at_ms`."""
    at = datetime.fromtimestamp(max(0, at_ms) / 1000, UTC)
    return round(datetime(at.year, at.month, 1, tzinfo=UTC).timestamp() * 1000)


def _archive_month(store: Store, folder: Path, start_ms: int) -> Iterator[ArchivedMonth]:
    """Write a month's prices to its file, merged with its content. Yields nothing if there are no new ones."""
    path = folder / f"prices-{datetime.fromtimestamp(start_ms / 1000, UTC):%Y-%m}.parquet"
    before = _merged(_recorded(path)) if path.exists() else {}
    with store.read() as tx:
        rows = _merged(tx.points_between(start_ms, _next_month(start_ms)))
    merged = {**before, **rows}
    if not merged or len(merged) == len(before):
        return
    write_rows(path, COLUMNS, (values_of(*merged[key]) for key in sorted(merged)))
    path.chmod(0o600)  # it is in the private state folder, unlike an export
    yield ArchivedMonth(path.stem.removeprefix("prices-"), str(path), len(merged))


def _recorded(path: Path) -> Iterator[Priced]:
    found = layout(COLUMNS, name=path.name, provider="", at_ms=None)
    assert found is not None
    rows: Iterable[PriceRow] = (row for line, values in archived_rows(path) for row in found.read(line, values))
    return ((row.offer, row.point) for row in rows)


def _merged(rows: Iterable[Priced]) -> dict[tuple[str, int], Priced]:
    return {(point.offer_id, point.effective_at_ms): (offer, point) for offer, point in rows}


def _months(first_ms: int, end_ms: int) -> Iterator[int]:
    while first_ms < end_ms:
        yield first_ms
        first_ms = _next_month(first_ms)


def _next_month(start_ms: int) -> int:
    return month_of(start_ms + 32 * DAY_MS)
