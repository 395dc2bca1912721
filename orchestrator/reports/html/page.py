"""The report as a self-contained page: the templates, charts and style of the dashboard in a single file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from orchestrator.formats.readable import unique_labels
from orchestrator.reports.html.charts import job as charts
from orchestrator.reports.html.charts.report import costs
from orchestrator.reports.html.figures import money, percent
from orchestrator.reports.html.render import STYLE, render
from orchestrator.reports.views import BaselineSum, JobReport, ReportView

TIME_PARTS = (
    ("training", "useful_ms"),
    ("training, no steps reported", "unreported_ms"),
    ("checkpoints", "checkpoint_ms"),
    ("repeated work", "lost_work_ms"),
    ("starting machines", "provisioning_ms"),
    ("migrating", "migration_ms"),
    ("idle", "idle_ms"),
)
SIMULATED = "Simulated: prices, costs and times come from a market on this machine. No real money was spent."


@dataclass(frozen=True)
class _Look:
    """The values that the page frame needs, for a self-contained page."""

    at_ms: int
    simulated: str
    inline_style: Markup
    theme: str = ""
    message: str = ""
    command: str = "tradewind report"
    live: bool = False
    twin: None = None


def page(view: ReportView) -> str:
    """A complete HTML document that loads no other files."""
    factor = f" Its clock runs {view.clock_factor:g} times as fast as real time." if view.clock_factor != 1 else ""
    look = _Look(view.at_ms, SIMULATED + factor if view.simulated else "", Markup(STYLE.read_text(encoding="utf-8")))
    names = unique_labels((row.job.id, row.job.name) for row in view.jobs)
    drawn = [
        (row, charts.timeline(row, view.at_ms), charts.prices_paid(row, view.at_ms), charts.loss(row))
        for row in view.jobs
    ]
    return render(
        "report.html",
        look=look,
        view=view,
        figures=list(_figures(view)),
        drawn=drawn,
        costs=costs(view, names),
        names=names,
        time_parts=TIME_PARTS,
        standing=_standing,
        hidden=view.entry_count - len(view.entries),
        earlier_nano_usd=view.paid_nano_usd - sum(entry.amount_nano_usd for entry in view.entries),
    )


def _figures(view: ReportView) -> Iterable[tuple[str, object]]:
    """(name, value) of the figures at the top: paid + saved = the same machine on demand."""
    jobs = "1 job" if len(view.jobs) == 1 else f"{len(view.jobs)} jobs"
    sums = view.total("same_machine")
    if not sums.jobs:
        yield "paid", money(view.paid_nano_usd)
    else:
        so_far = ", so far" if sums.provisional else ""
        yield f"+ saved compared with the same machine on demand{so_far}", _saved(sums)
        yield "paid" + ("" if sums.jobs == len(view.jobs) else f" by {sums.jobs} of {jobs}"), money(sums.paid_nano_usd)
        yield "= same machine on demand", money(sums.baseline_nano_usd)
        if sums.left_out:
            out = "1 job that is" if len(sums.left_out) == 1 else f"{len(sums.left_out)} jobs that are"
            yield f"paid by {out} left out", money(sums.left_out_nano_usd)
    yield "migrations", sum(row.job.migrations for row in view.jobs)
    yield "steps repeated", sum(row.job.steps_repeated for row in view.jobs)


def _saved(sums: BaselineSum) -> Markup:
    share = f" ({percent(sums.saved_nano_usd / sums.baseline_nano_usd)})" if sums.baseline_nano_usd > 0 else ""
    return money(sums.saved_nano_usd) + share


def _standing(row: JobReport) -> str:
    if row.provisional:
        return "provisional"
    return f"version {row.version}: {row.corrected}" if row.corrected else "final"
