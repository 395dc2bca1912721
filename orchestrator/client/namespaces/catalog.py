"""client.catalog: the offline catalogue of offers and list prices."""

from __future__ import annotations

from pathlib import Path

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.services.catalog import contents
from orchestrator.services.catalog import update as updating
from orchestrator.services.catalog.views import CatalogUpdate, CatalogVerdict, CatalogView
from providers.clock import SystemClock


@checked
class Catalog:
    """It belongs to the user of this machine, not to an installation. `path` is a CSV file of your own."""

    def show(self, path: str | Path | None = None) -> CatalogView:
        """What it holds and how old that is, with the rows of a file of your own. Raises SpecError."""
        return contents.show(SystemClock().now_ms(), None if path is None else path_of(path))

    def verify(self, path: str | Path | None = None) -> CatalogVerdict:
        """What is wrong with it, or with a file of your own. Raises NotFoundError."""
        return contents.verify(SystemClock().now_ms(), None if path is None else path_of(path))

    def update(self, source: str, *, sha256: str | None = None, force: bool = False) -> CatalogUpdate:
        """Install the catalogue that is published at a URL or path, for all of this user's programs. `sha256` is that
        of its manifest; `force` takes an older one, too. Raises UsageError for one that is refused, SpecError for a
        damaged one, NotFoundError, ProviderFailure."""
        return updating.update(SystemClock().now_ms(), source, sha256=sha256, force=force)
