"""client.prices: collects, reads, imports and exports prices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.prices import archive, recorded
from orchestrator.prices.views import (
    AcceptedPrice,
    CollectedRegion,
    PollList,
    PriceArchive,
    PriceChange,
    PriceCollection,
    PriceExport,
    PriceHistory,
    PriceImport,
    PriceStatus,
)
from orchestrator.services.prices import history, prices
from orchestrator.services.prices.accept import accept
from orchestrator.services.prices.history import PriceQuery


@checked
class Prices:
    """`since` and `at` are instants: `30d` or `12h` (ago), `2026-11-21` or `2026-11-21T13:00:00Z`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def status(self) -> PriceStatus:
        """When each source and region was last polled, the result, and flagged prices."""
        return prices.status(self._session.installation)

    def history(
        self,
        offer_id: str | None = None,
        *,
        gpu: str | None = None,
        provider: str | None = None,
        region: str | None = None,
        spot: bool | None = None,
        since: str = "30d",
        limit: int | None = 6,
        cursor: str | None = None,
    ) -> PriceHistory:
        """All price changes of an offer, or of the matching offers, the cheapest per GPU first. All pages end at the
        instant of the first page. Raises NotFoundError, UsageError."""
        query = PriceQuery(offer_id, gpu, provider, region, spot)
        return history.history(self._session.installation, query, since=since, limit=limit, cursor=cursor)

    def polls(self, provider: str | None = None, *, limit: int | None = 100, cursor: str | None = None) -> PollList:
        """Each poll of the prices of a provider (None: of any), with the result; the newest first. Raises UsageError
        for an invalid limit or cursor."""
        return prices.polls(self._session.installation, provider, limit=limit, cursor=cursor)

    def watch(self, *, gpu: str | None = None) -> Iterator[PriceChange]:
        """Price changes and failed polls from now on; it never ends. Raises UsageError."""
        return prices.watch(self._session.installation, gpu=gpu)

    def accept(self, offer_id: str) -> AcceptedPrice:
        """Accept, as the caller, a price that is flagged as implausible or as a leap. Raises NotFoundError,
        UsageError."""
        return accept(self._session.installation, offer_id, caller=self._session.caller)

    def collect(
        self,
        *,
        clouds: Sequence[str] = (),
        feeds: Sequence[tuple[str, str]] = (),
        once: bool = True,
        reported: Callable[[CollectedRegion], None] = lambda _: None,
    ) -> PriceCollection:
        """Poll clouds and feeds (name, file or URL), or else the enabled providers and the configured sources. Without
        `once`, it continues until stopped, each region at its own interval. `reported` is called with each poll. Raises
        UsageError."""
        return prices.collect(self._session.installation, clouds=clouds, feeds=feeds, once=once, reported=reported)

    def import_tables(
        self,
        paths: Sequence[str | Path],
        *,
        provider: str = "",
        at: str = "",
        progress: Callable[[str, int, int | None], None] = lambda _text, _done, _total: None,
    ) -> PriceImport:
        """Import tables of recorded prices, or folders of them, into the store. `provider` and `at` are for tables that
        do not name the provider and the time of their prices. Raises UsageError, MissingExtraError."""
        installation = self._session.installation
        return recorded.import_prices(
            installation.store,
            [path_of(path) for path in paths],
            provider=provider,
            at_ms=history.instant_of(at, installation.clock.now_ms()) if at else None,
            now_ms=installation.outside_clock.now_ms(),
            reserved=installation.providers.keys(),
            progress=progress,
        )

    def export(
        self, path: str | Path, *, gpu: str | None = None, provider: str | None = None, since: str = ""
    ) -> PriceExport:
        """Write all price changes to a CSV or Parquet file. Raises UsageError, MissingExtraError."""
        installation = self._session.installation
        from_ms = history.instant_of(since, installation.clock.now_ms()) if since else 0
        return archive.export(installation.store, path_of(path), gpu=gpu, provider=provider, from_ms=from_ms)

    def archive(self, *, keep_days: int = 400) -> PriceArchive:
        """Write complete months to files, and delete prices older than `keep_days` from the store. Raises
        UsageError."""
        installation = self._session.installation
        now_ms = installation.outside_clock.now_ms()
        return archive.archive(installation.store, installation.state_dir / "archive", now_ms, keep_days=keep_days)
