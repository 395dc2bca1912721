"""Which function shows which view. Must not know: how."""

from __future__ import annotations

from orchestrator.cli.render import catalog, jobs, plans, prices, reports, store, system
from orchestrator.cli.render.text import Paint
from orchestrator.services import catalog_views, price_views, store_views, views

RENDERERS = {
    catalog_views.CatalogVerdict: catalog.verdict,
    catalog_views.CatalogView: catalog.catalog,
    price_views.CollectedRegion: prices.polled,
    price_views.PriceArchive: prices.archived,
    price_views.PriceChange: prices.change,
    price_views.PriceCollection: prices.collection,
    price_views.PriceExport: prices.exported,
    price_views.PriceHistory: prices.history,
    price_views.PriceImport: prices.imported,
    price_views.PriceStatus: prices.status,
    store_views.StoreBackup: store.backup,
    store_views.StoreDiagnosis: system.diagnosis,
    store_views.StoreRestored: store.restored,
    views.Accepted: system.accepted,
    views.ControlPlaneView: system.control_plane,
    views.Diagnosis: system.diagnosis,
    views.EventList: jobs.events,
    views.Explanation: plans.explanation,
    views.Fetched: jobs.fetched,
    views.JobList: jobs.queue,
    views.JobView: jobs.job,
    views.LogLine: jobs.log_line,
    views.OfferList: system.offers,
    views.PlanView: plans.plan,
    views.ReportView: reports.report,
    views.SettingList: system.settings,
    views.StatusView: jobs.status,
    views.Version: system.version,
}


def render(view: views.View, *, color: bool) -> str:
    """A view as text, without a newline at its end."""
    show = RENDERERS[type(view)]
    return show(view, Paint(color))  # type: ignore[operator, no-any-return]
