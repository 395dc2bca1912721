"""The page: its sections, each with the command that reproduces its figures."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from orchestrator.formats.html.markup import Html, element, join, table
from orchestrator.formats.html.style import STYLE
from orchestrator.formats.readable import iso
from orchestrator.ledger import BASELINES, Baseline
from orchestrator.reports.html import static_charts as charts
from orchestrator.reports.views import BaselineSum, JobReport, ReportView
from providers.money import format_usd

TIME_PARTS = (
    ("useful", "useful_ms"),
    ("checkpoint", "checkpoint_ms"),
    ("lost work", "lost_work_ms"),
    ("provisioning", "provisioning_ms"),
    ("migration", "migration_ms"),
    ("idle", "idle_ms"),
)


def page(view: ReportView) -> str:
    """A complete HTML document."""
    title = f"Tradewind report, {_instant(view.at_ms)}"
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", title),
        element("style", Html(STYLE)),
    )
    body = element("body", element("header", *_header(view)), element("main", *_sections(view)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _header(view: ReportView) -> Iterable[Html]:
    yield element("h1", "Tradewind report")
    jobs = "1 job" if len(view.jobs) == 1 else f"{len(view.jobs)} jobs"
    yield element("p", f"{jobs}, as of {_instant(view.at_ms)}", class_="muted")
    if view.simulated:
        factor = f" Its clock runs {view.clock_factor:g} times as fast as real time." if view.clock_factor != 1 else ""
        words = "Simulated: prices, costs and times come from a market on this machine. No real money was spent."
        yield element("p", words + factor, class_="simulated", role="note")
    figures: list[tuple[str, object]] = [("paid", _exact(view.paid_nano_usd))]
    sums = view.total("same_machine")
    if sums.jobs:
        of = "" if sums.jobs == len(view.jobs) else f" by {sums.jobs} of {jobs}"
        so_far = ", so far" if sums.provisional else ""
        figures[:1] = [
            (f"paid{of}", _exact(sums.paid_nano_usd)),
            (f"+ saved against the same machine on demand{so_far}", _saved(sums)),
            ("= same machine on demand", _exact(sums.baseline_nano_usd)),
        ]
        if sums.left_out:
            out = "1 job that is" if len(sums.left_out) == 1 else f"{len(sums.left_out)} jobs that are"
            figures.append((f"paid by {out} left out", _exact(sums.left_out_nano_usd)))
    figures.append(("migrations", sum(row.job.migrations for row in view.jobs)))
    figures.append(("steps repeated", sum(row.job.steps_repeated for row in view.jobs)))
    yield element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in figures))


def _sections(view: ReportView) -> Iterable[Html]:
    if not view.jobs:
        yield element("p", "There are no jobs to report on.")
        return
    yield _section("Jobs", "tradewind report", _jobs(view), *(element("p", _verdict(row)) for row in view.jobs))
    yield _section("Paid and saved", "tradewind report --savings-csv", *map(partial(_against, view), BASELINES))
    yield _section("Where they ran", "tradewind status JOB", charts.timeline(view), _runs(view))
    yield _section("Cost", "tradewind report --output json", charts.costs(view), _time_parts(view))
    drawn = [(charts.prices(row, view, i), charts.loss(row, i)) for i, row in enumerate(view.jobs)]
    prices = [chart for chart, _ in drawn if chart is not None]
    losses = [chart for _, chart in drawn if chart is not None]
    if prices:
        yield _section("Prices", "tradewind report --output json", *prices)
    if losses:
        yield _section("Loss", "tradewind report --output json", *losses)
    yield _section("Ledger", "tradewind report --csv", _entries(view))
    yield _section("What happened", "tradewind events", _events(view))


def _section(title: str, command: str, *content: object) -> Html:
    reproduce = element("p", "These figures: ", element("code", command), class_="muted")
    return element("section", element("h2", title), reproduce, *content)


def _jobs(view: ReportView) -> Html:
    head = ("job", "state", "objective", "steps", "runs", "migrations", "repeated", "hours", "paid", "loss")
    rows = [
        (
            row.job.name,
            row.job.state,
            row.job.objective,
            row.job.step,
            row.job.runs,
            row.job.migrations,
            row.job.steps_repeated,
            f"{row.duration_s / 3600:.2f}",
            _exact(row.paid_nano_usd),
            "-" if row.job.loss is None else f"{row.job.loss:.6g}",
        )
        for row in view.jobs
    ]
    foot = ("total", *[""] * 7, _exact(view.paid_nano_usd), "")
    caption = "Jobs; hours are in market time, from submission to the end"
    return table(caption, head, rows, numbers=range(3, 10), foot=[foot])


def _against(view: ReportView, baseline: Baseline) -> Html:
    """A table in which paid + saved = baseline, in every row and in the total."""
    sums = view.total(baseline)
    cells = [(row, row.against(baseline)) for row in view.jobs]
    rows = [
        (
            row.job.name,
            _exact(cell.paid_nano_usd),
            _money(cell.saved_nano_usd),
            _money(cell.baseline_nano_usd),
            f"left out: {cell.left_out}" if cell.left_out else _standing(row),
            ", ".join(cell.offer_ids),
            cell.speed,
        )
        for row, cell in cells
    ]
    count = "1 job" if sums.jobs == 1 else f"{sums.jobs} jobs"
    amounts = map(_exact, (sums.paid_nano_usd, sums.saved_nano_usd, sums.baseline_nano_usd))
    so_far = f"{sums.provisional} of them provisional" if sums.provisional else "final"
    foot = [(f"total of {count}", *amounts, so_far, "", "")]
    if sums.left_out:
        names = ", ".join(each.name for each in sums.left_out)
        foot.append(("left out", _exact(sums.left_out_nano_usd), "-", "-", names, "", ""))
        foot.append(("paid in all", _exact(view.paid_nano_usd), "-", "-", "", "", ""))
    head = ("job", "paid", "+ saved", "= would have cost", "", "machines", "speed there")
    return table(f"Against {sums.name}: {sums.definition}", head, rows, numbers=(1, 2, 3), foot=foot)


def _standing(row: JobReport) -> str:
    if row.provisional:
        return "provisional"
    return f"version {row.version}: {row.corrected}" if row.corrected else "final"


def _verdict(row: JobReport) -> Html:
    return join(
        [
            element("b", row.job.name),
            ": ",
            f"to go: {row.job.to_go}; " if row.job.to_go else "",
            row.verdict,
            " ",
            element("code", f"tradewind explain {row.job.id}"),
        ]
    )


def _runs(view: ReportView) -> Html:
    head = ("job and run", "offer", "because", "end", "steps", "repeated", "paid")
    rows = [
        (
            f"{row.job.name} {cost.number}",
            cost.run.offer_id,
            cost.reason,
            cost.run.end or cost.run.state,
            f"{cost.run.start_step} to {cost.run.last_step}",
            cost.run.repeated_steps,
            _exact(cost.cost_nano_usd),
        )
        for row in view.jobs
        for cost in row.runs
    ]
    return table("Runs", head, rows, numbers=(4, 5, 6))


def _time_parts(view: ReportView) -> Html:
    head = ("job", *(name for name, _ in TIME_PARTS), "billed")
    rows = [
        (
            row.job.name,
            *(f"{getattr(row.time_breakdown, field) / 1000:,.0f}" for _, field in TIME_PARTS),
            f"{row.time_breakdown.total_ms / 1000:,.0f}",
        )
        for row in view.jobs
    ]
    return table("Where the billed time went, in market seconds", head, rows, numbers=range(1, 8))


def _entries(view: ReportView) -> Html:
    names = {row.job.id: row.job.name for row in view.jobs}
    head = ("entry", "job", "offer", "kind", "from", "to", "basis", "corrects", "amount")
    rows: list[tuple[object, ...]] = [
        (
            entry.id,
            names.get(entry.job_id, entry.job_id),
            entry.offer_id,
            entry.kind,
            _instant(entry.period_start_ms),
            _instant(entry.period_end_ms),
            entry.basis,
            entry.reverses or "",
            _exact(entry.amount_nano_usd),
        )
        for entry in view.entries
    ]
    kinds = ", ".join(f"{kind} {format_usd(amount, 6)}" for kind, amount in view.kinds.items())
    if hidden := view.entry_count - len(view.entries):
        earlier = view.paid_nano_usd - sum(entry.amount_nano_usd for entry in view.entries)
        rows.insert(0, (f"{hidden} entries of earlier jobs", *[""] * 7, _exact(earlier)))
    foot = [("total", *[""] * 7, _exact(view.paid_nano_usd))]
    made = table("Ledger entries, to the nano-dollar", head, rows, numbers=(8,), foot=foot)
    summary = f"{view.entry_count} entries sum to {_exact(view.paid_nano_usd)}" + (f": {kinds}" if kinds else "")
    return element("details", element("summary", summary), made)


def _events(view: ReportView) -> Html:
    names = {row.job.id: row.job.name for row in view.jobs}
    rows = [
        (_instant(event.at_ms), names.get(event.job_id or "", "-"), event.kind, event.message, event.actor)
        for event in view.events
    ]
    made = table("Events, oldest first", ("when", "job", "what", "message", "who"), rows)
    return element("details", element("summary", f"the last {len(view.events)} events"), made)


def _saved(sums: BaselineSum) -> str:
    share = f" ({sums.saved_nano_usd / sums.baseline_nano_usd:.0%})" if sums.baseline_nano_usd > 0 else ""
    return _exact(sums.saved_nano_usd) + share


def _money(nano_usd: int | None) -> str:
    return "-" if nano_usd is None else _exact(nano_usd)


def _exact(nano_usd: int) -> str:
    """Unrounded, so that the displayed rows sum to the displayed total."""
    return format_usd(nano_usd, 9)


def _instant(at_ms: int) -> str:
    return f"{iso(at_ms)[:19].replace('T', ' ')} UTC"
