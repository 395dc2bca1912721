"""The demo's output: a live view on a terminal, plain lines elsewhere, and the closing table."""

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

from orchestrator.reports.views import ReportView
from orchestrator.services.views import JobView
from providers.money import format_usd
from providers.offer import OfferId

STATE_STYLE = {"running": "green", "finished": "bold green", "migrating": "yellow", "failed": "bold red"}


class Screen:
    """`line` shows an event, `jobs` the current state of the jobs. Only a terminal gets the live view."""

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
        """The live view: a table of the jobs and the latest events."""
        table = Table(expand=True, title=self._headline, title_style="bold")
        for column in ("job", "objective", "state", "where (simulated)", "progress", "loss", "paid (simulated)"):
            table.add_column(column, justify="right" if column.startswith(("loss", "paid")) else "left")
        for job in self._jobs:
            total = job.total_steps or 1
            where = "-" if job.offer_id is None else _machine(OfferId.parse(job.offer_id))
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
        return Group(table, Panel(Group(*self._events), title="decisions and reasons", title_align="left"))


def objective(job: JobView) -> str:
    """The objective with its limits, such as `cheapest, within 72 h` or `fastest, for $30`."""
    parts = [job.objective]
    if job.deadline_at_ms is not None:
        parts.append(f"within {(job.deadline_at_ms - job.submitted_at_ms) / 3_600_000:.0f} h")
    if job.budget_nano_usd is not None:
        parts.append(f"for {format_usd(job.budget_nano_usd)}")
    return ", ".join(parts)


def closing_table(view: ReportView) -> Table:
    """Runs, migrations, time and cost per job, next to the cost of the same machine on demand (paid + saved)."""
    table = Table(title="Results (prices, bills and market time are simulated)", title_style="bold")
    amounts = ("paid", "+ saved", "= same machine on demand")
    for column in ("job", "runs", "migrations", "steps repeated", "wall time", *amounts, "loss"):
        table.add_column(column, justify="left" if column == "job" else "right")
    for row in view.jobs:
        against = row.against("same_machine")
        table.add_row(
            row.job.name,
            str(len(row.runs)),
            str(row.job.migrations),
            str(row.job.steps_repeated),
            f"{row.duration_wall_s:.0f} s",
            *_amounts(against.paid_nano_usd, against.saved_nano_usd, against.baseline_nano_usd),
            "-" if row.job.loss is None else f"{row.job.loss:.4f}",
        )
    table.add_section()
    sums = view.total("same_machine")
    of = "total" if not sums.left_out else f"total of {sums.jobs} compared"
    total = _amounts(sums.paid_nano_usd, sums.saved_nano_usd, sums.baseline_nano_usd)
    table.add_row(of, "", "", "", "", *total, "", style="bold")
    return table


def _amounts(*nano_usd: int | None) -> tuple[str, ...]:
    return tuple("-" if amount is None else format_usd(amount, 9) for amount in nano_usd)


def market_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%d %b %H:%M")


def _machine(offer: OfferId) -> str:
    return f"{offer.zone}/{offer.instance_type}/{offer.capacity_type}"
