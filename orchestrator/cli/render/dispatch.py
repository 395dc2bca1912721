"""Which function shows which view.

The table has names, not functions, so that a command imports only the function that it needs.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from orchestrator.cli.render.text import Screen, fitted, shown
from orchestrator.formats.documents import View
from orchestrator.formats.hidden import visible
from orchestrator.services.views import LogLine

FILES = ("CloudPolicy", "Conversion")
"""Views whose text is a file, to be saved or to be read by a program."""

RENDERERS = {
    "Accepted": "system:accepted",
    "Backtest": "backtest:backtest",
    "CatalogUpdate": "catalog:update",
    "CatalogVerdict": "catalog:verdict",
    "CatalogView": "catalog:catalog",
    "CloudPolicy": "system:policy",
    "CollectedRegion": "prices:polled",
    "ControlPlaneView": "system:control_plane",
    "Conversion": "system:conversion",
    "CostView": "costs:costs",
    "Diagnosis": "system:diagnosis",
    "EventList": "jobs:events",
    "Explanation": "plans:explanation",
    "Fetched": "jobs:fetched",
    "GroupPlanView": "groups:group_plan",
    "GroupView": "groups:group",
    "ImportedTable": "profiles:imported",
    "GroupBacktest": "backtest:of_jobs",
    "JobList": "jobs:queue",
    "JobView": "jobs:job",
    "LedgerCorrection": "store:correction",
    "LogLine": "jobs:log_line",
    "NetworkList": "system:networks",
    "NodeList": "nodes:nodes",
    "OfferList": "offers:offers",
    "PaperTables": "backtest:paper",
    "PlanView": "plans:plan",
    "AcceptedPrice": "prices:accepted",
    "CheckpointExported": "checkpoints:exported",
    "CheckpointList": "checkpoints:listed",
    "CheckpointsPruned": "checkpoints:pruned",
    "PriceArchive": "prices:archived",
    "PriceChange": "prices:change",
    "PriceCollection": "prices:collection",
    "PriceExport": "prices:exported",
    "PriceHistory": "prices:history",
    "PriceImport": "prices:imported",
    "PriceStatus": "prices:status",
    "ProfileView": "profiles:profile",
    "ReportView": "reports:report",
    "SetUp": "setup:set_up",
    "SettingList": "system:settings",
    "StatusView": "jobs:status",
    "StoreBackup": "store:backup",
    "StoreDiagnosis": "system:diagnosis",
    "StorePruned": "store:pruned",
    "StoreRestored": "store:restored",
    "Version": "system:version",
    "WatchView": "watch:watch",
}


def render(view: View, screen: Screen, *, terminal: bool = True) -> str:
    """A view as text, without a final newline and with no line wider than the screen. The output of a job, and files,
    keep their lines; on a `terminal` their control characters are escaped."""
    module, _, function = RENDERERS[type(view).__name__].partition(":")
    show = getattr(import_module(f"orchestrator.cli.render.screens.{module}"), function)
    if not is_verbatim(view):
        return shown(fitted(show(view, screen), screen.limit))
    if isinstance(view, LogLine) and terminal:
        view = replace(view, text=visible(view.text))
    text: str = show(view, screen)
    return shown(text) if terminal else text


def is_verbatim(view: View) -> bool:
    """Whether the text of a view must not be changed: the output of a job, and files."""
    return isinstance(view, LogLine) or type(view).__name__ in FILES
