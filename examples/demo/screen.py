"""What the demo shows: a live view on a terminal, lines elsewhere, and the closing table."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.services.views import JobReport, JobView
from providers.money import format_usd

STATE_STYLE = {"running": "green", "finished": "bold green", "migrating": "yellow", "failed": "bold red"}


class Screen:
    """`line` for what happened, `jobs` for how things stand. Only a terminal gets the live view."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._events: deque[Text] = deque(maxlen=12)
        self._jobs: Sequence[JobView] = ()
        self._headline = "starting"
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, message: str, *, style: str = "", at_ms: int | None = None) -> None:
        stamp = "" if at_ms is None else f"{market_time(at_ms)}  "
        text = Text(f"{stamp}{message}", style=style)
        self._events.append(text)
        if self._live is None:
            self.console.print(text, soft_wrap=True)
        else:
            self._live.update(self.view())

    def jobs(self, jobs: Sequence[JobView], headline: str) -> None:
        self._jobs, self._headline = jobs, headline
        if self._live is not None:
            self._live.update(self.view())

    def view(self) -> RenderableType:
        """The present picture."""
        table = Table(expand=True, title=self._headline, title_style="bold")
        for column in ("job", "objective", "state", "where (simulated)", "progress", "loss", "paid (simulated)"):
            table.add_column(column, justify="right" if column.startswith(("loss", "paid")) else "left")
        for job in self._jobs:
            total = job.total_steps or 1
            where = "-" if job.offer_id is None else "/".join(job.offer_id.split("/")[2:])
            bar = Table.grid(expand=True)
            bar.add_row(ProgressBar(total=total, completed=job.step, width=14), f" {job.step}/{total}")
            table.add_row(
                job.name,
                objective(job),
                Text(job.state, style=STATE_STYLE.get(job.state, "")),
                where,
                bar,
                "-" if job.loss is None else f"{job.loss:.4f}",
                format_usd(job.paid_nano_usd),
            )
        return Group(table, Panel(Group(*self._events), title="what was decided, and why", title_align="left"))


def objective(job: JobView) -> str:
    """`cheapest, in 3 days` or `fastest, for $30`."""
    parts = [job.objective]
    if job.deadline_at_ms is not None:
        parts.append(f"within {(job.deadline_at_ms - job.submitted_at_ms) / 3_600_000:.0f} h")
    if job.budget_nano_usd is not None:
        parts.append(f"for {format_usd(job.budget_nano_usd)}")
    return ", ".join(parts)


def closing_table(reports: Sequence[JobReport]) -> Table:
    """Per job: what it took, and what it would have cost had it stayed on the on-demand instance."""
    table = Table(title="What it took (prices, bills and market time are simulated)", title_style="bold")
    for column in ("job", "runs", "migrations", "steps repeated", "wall time", "paid", "on-demand", "saved", "loss"):
        table.add_column(column, justify="left" if column == "job" else "right")
    paid = baseline = 0
    for report in reports:
        paid += report.paid_nano_usd
        baseline += report.baseline_nano_usd or 0
        table.add_row(
            report.job.name,
            str(len(report.runs)),
            str(report.job.moves),
            str(report.job.steps_repeated),
            f"{report.duration_wall_s:.0f} s",
            format_usd(report.paid_nano_usd),
            "-" if report.baseline_nano_usd is None else format_usd(report.baseline_nano_usd),
            _saved(report.paid_nano_usd, report.baseline_nano_usd),
            "-" if report.job.loss is None else f"{report.job.loss:.4f}",
        )
    table.add_section()
    total = ["total", "", "", "", "", format_usd(paid), format_usd(baseline), _saved(paid, baseline), ""]
    table.add_row(*total, style="bold")
    return table


def _saved(paid: int, baseline: int | None) -> str:
    if not baseline:
        return "-"
    share = 1 - paid / baseline
    return f"{share:.0%}" if share >= 0 else f"{-share:.0%} dearer"


def market_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%d %b %H:%M")
