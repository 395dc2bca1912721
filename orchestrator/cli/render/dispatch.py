"""Which function shows which view. Must not know: how.

Names, not functions: a command loads the one that it needs.
"""

from __future__ import annotations

from importlib import import_module

from orchestrator.cli.render.text import Paint
from orchestrator.services.documents import View

RENDERERS = {
    "Accepted": "system:accepted",
    "CatalogVerdict": "catalog:verdict",
    "CatalogView": "catalog:catalog",
    "CollectedRegion": "prices:polled",
    "ControlPlaneView": "system:control_plane",
    "Diagnosis": "system:diagnosis",
    "EventList": "jobs:events",
    "Explanation": "plans:explanation",
    "Fetched": "jobs:fetched",
    "ImportedTable": "profiles:imported",
    "JobList": "jobs:queue",
    "JobView": "jobs:job",
    "LogLine": "jobs:log_line",
    "OfferList": "offers:offers",
    "PlanView": "plans:plan",
    "PriceArchive": "prices:archived",
    "PriceChange": "prices:change",
    "PriceCollection": "prices:collection",
    "PriceExport": "prices:exported",
    "PriceHistory": "prices:history",
    "PriceImport": "prices:imported",
    "PriceStatus": "prices:status",
    "ProfileView": "profiles:profile",
    "ReportView": "reports:report",
    "SettingList": "system:settings",
    "StatusView": "jobs:status",
    "StoreBackup": "store:backup",
    "StoreDiagnosis": "system:diagnosis",
    "StoreRestored": "store:restored",
    "Version": "system:version",
}


def render(view: View, *, color: bool) -> str:
    """A view as text, without a newline at its end."""
    module, _, function = RENDERERS[type(view).__name__].partition(":")
    show = getattr(import_module(f"orchestrator.cli.render.{module}"), function)
    return show(view, Paint(color))  # type: ignore[no-any-return]
