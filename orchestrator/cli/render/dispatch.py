"""Which function shows which view. Must not know: how."""

from __future__ import annotations

from orchestrator.cli.render import jobs, plans, profiles, reports, store, system
from orchestrator.cli.render.text import Paint
from orchestrator.services import store_views, views

RENDERERS = {
    store_views.StoreBackup: store.backup,
    store_views.StoreDiagnosis: system.diagnosis,
    store_views.StoreRestored: store.restored,
    views.Accepted: system.accepted,
    views.ControlPlaneView: system.control_plane,
    views.Diagnosis: system.diagnosis,
    views.EventList: jobs.events,
    views.Explanation: plans.explanation,
    views.Fetched: jobs.fetched,
    views.ImportedTable: profiles.imported,
    views.JobList: jobs.queue,
    views.JobView: jobs.job,
    views.LogLine: jobs.log_line,
    views.OfferList: system.offers,
    views.PlanView: plans.plan,
    views.ProfileView: profiles.profile,
    views.ReportView: reports.report,
    views.SettingList: system.settings,
    views.StatusView: jobs.status,
    views.Version: system.version,
}


def render(view: views.View, *, color: bool) -> str:
    """A view as text, without a newline at its end."""
    show = RENDERERS[type(view)]
    return show(view, Paint(color))  # type: ignore[operator, no-any-return]
