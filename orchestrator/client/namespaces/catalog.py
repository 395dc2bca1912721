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
    """The catalogue belongs to the user of this machine, not to an installation. `path` is a CSV file of your own."""

    def show(self, path: str | Path | None = None) -> CatalogView:
        """The catalogue's content and its age, with the rows of your file. Raises SpecError."""
        return contents.show(SystemClock().now_ms(), None if path is None else path_of(path))

    def verify(self, path: str | Path | None = None) -> CatalogVerdict:
        """Check the catalogue, or your file. Raises NotFoundError."""
        return contents.verify(SystemClock().now_ms(), None if path is None else path_of(path))

    def update(self, source: str, *, sha256: str | None = None, force: bool = False) -> CatalogUpdate:
        """Install the catalogue from a URL or path, for all programs of this user. `sha256` is the hash of its
        manifest; `force` also accepts an older catalogue. Raises UsageError if the catalogue is refused, SpecError if
        it is damaged, NotFoundError, ProviderFailure."""
        return updating.update(SystemClock().now_ms(), source, sha256=sha256, force=force)
