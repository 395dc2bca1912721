"""The report as text: one row per job, the exact totals, and where the billed time went."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.cli.render.screens.jobs import late_jobs
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    blocks,
    clean,
    money,
    note_simulated,
    number,
    progress,
    span,
)
from orchestrator.formats.readable import unique_labels
from orchestrator.reports.views import BaselineSum, Compared, JobReport, ReportView
from providers.money import NANO_USD

JOBS = (
    Column("job"),
    Column("state", 2, state=True),
    numbers("progress", 4),
    numbers("runs", 8),
    numbers("migrations", 6),
    numbers("repeated", 9),
    numbers("time", 3),
    numbers("real", 7),
    numbers("loss", 5),
    numbers("paid"),
    numbers("+ saved"),
    numbers("= on-demand"),
    Column("compared", 1),
)
COMPARED = (
    Column("compared with"),
    Column("jobs", 2),
    numbers("paid", 1),
    numbers("+ saved"),
    numbers("= cost"),
    Column("which is", 3, text=True),
)
PLACES, WHOLE = 4, 9


def report(view: ReportView, screen: Screen) -> str:
    """What each job cost and saved, in US dollars: exact with `--wide`, otherwise rounded so that each row adds up."""
    if not view.jobs:
        return "no jobs"
    names = unique_labels((row.job.id, row.job.name) for row in view.jobs)
    rows = [_row(row, names[row.job.id], screen) for row in view.jobs]
    rows += [(name, *[""] * 8, *_shown(paid, saved, cost, screen), "") for name, paid, saved, cost in _sums(view)]
    real = f"1 real second is {view.clock_factor:g} market seconds; " if view.clock_factor != 1 else ""
    entries = f"{view.entry_count} ledger entries"
    if len(kinds := view.kinds) > 1:
        named = (f"{KINDS.get(kind, kind)} {money(sum_, _places(screen))}" for kind, sum_ in kinds.items())
        entries += f" ({', '.join(named)})"
    compared = [
        (each.name, _count(each, view), *_shown(*_amounts(each), screen), each.definition) for each in view.totals
    ]
    return blocks(
        table(JOBS, rows, screen),
        " ",
        table(COMPARED, compared, screen),
        " ",
        *(f"{clean(names[row.job.id])}: to go: {clean(row.job.to_go)}" for row in view.jobs if row.job.to_go),
        late_jobs([row.job for row in view.jobs]),
        *(f"{clean(names[row.job.id])}: {clean(row.verdict)}" for row in view.jobs),
        *_notes(view, names),
        " ",
        _time_parts(view, names, screen),
        " ",
        screen(f"{real}on-demand is the {view.total('same_machine').name}; paid + saved = cost", "dim"),
        screen(f"paid is the exact sum of {entries} (--csv shows them)", "dim"),
        "" if screen.wide else screen("amounts are rounded; --wide shows them exactly", "dim"),
        screen(note_simulated(view.simulated), "dim"),
    )


def _sums(view: ReportView) -> list[tuple[str, int, int | None, int | None]]:
    """The total; if jobs are left out of a comparison, preceded by sums of the compared jobs and of the others."""
    sums = view.total("same_machine")
    if not sums.left_out:
        return [("total", *_amounts(sums))]
    return [
        (f"{sums.jobs} compared", *_amounts(sums)),
        (f"{len(sums.left_out)} left out", sums.left_out_nano_usd, None, None),
        ("total", view.paid_nano_usd, None, None),
    ]


def _amounts(sums: BaselineSum) -> tuple[int, int | None, int | None]:
    if not sums.jobs:
        return 0, None, None
    return sums.paid_nano_usd, sums.saved_nano_usd, sums.baseline_nano_usd


def _places(screen: Screen) -> int:
    return WHOLE if screen.wide else PLACES


def _shown(paid: int, saved: int | None, baseline: int | None, screen: Screen) -> tuple[str, str, str]:
    """The three amounts, rounded so that they still add up. As everywhere, amounts below a cent have six decimals."""
    small = any(0 < abs(amount or 0) < NANO_USD // 100 for amount in (paid, baseline))
    places = max(_places(screen), 6 if small else 0)
    paid, baseline = round(paid, places - WHOLE), None if baseline is None else round(baseline, places - WHOLE)
    saved = None if saved is None or baseline is None else baseline - paid
    return money(paid, places), money(saved, places), money(baseline, places)


def _count(sums: BaselineSum, view: ReportView) -> str:
    so_far = f", {sums.provisional} so far" if sums.provisional else ""
    return f"{sums.jobs} of {len(view.jobs)}{so_far}"


def _notes(view: ReportView, names: Mapping[str, str]) -> list[str]:
    """Jobs whose comparison was repeated after it was final."""
    return [
        f"{clean(names[row.job.id])}: version {row.version}, {clean(row.corrected)}"
        for row in view.jobs
        if row.corrected and not row.provisional
    ]


KINDS = {
    "compute": "machine time",
    "minimum_charge": "minimum billing",
    "failed_launch": "failed launches",
    "storage": "storage of checkpoints",
    "egress_estimate": "egress (estimate)",
    "correction": "corrections",
}
TIME_PARTS = {
    "useful": "useful_ms",
    "no steps": "unreported_ms",
    "checkpoint": "checkpoint_ms",
    "lost work": "lost_work_ms",
    "provisioning": "provisioning_ms",
    "moves": "migration_ms",
    "idle": "idle_ms",
    "sum": "total_ms",
}


def _row(row: JobReport, name: str, screen: Screen) -> tuple[str, ...]:
    job, against = row.job, row.against("same_machine")
    return (
        name,
        job.state,
        progress(job),
        str(job.runs),
        str(job.migrations),
        str(job.steps_repeated),
        span(row.duration_s),
        span(row.duration_wall_s),
        number(job.loss, 6),
        *_shown(row.paid_nano_usd, against.saved_nano_usd, against.baseline_nano_usd, screen),
        _standing(row, against),
    )


def _standing(row: JobReport, against: Compared) -> str:
    if against.left_out:
        return "left out"
    if row.provisional:
        return "provisional"
    return f"version {row.version}" if row.corrected else "final"


def _time_parts(view: ReportView, names: Mapping[str, str], screen: Screen) -> str:
    """All parts at any width, because their sum is shown, too; the part of jobs without steps only if there are any."""
    some = any(row.time_breakdown.unreported_ms for row in view.jobs)
    parts = {name: field for name, field in TIME_PARTS.items() if some or field != "unreported_ms"}
    rows = [
        (names[row.job.id], *(span(getattr(row.time_breakdown, field) / 1000) for field in parts.values()))
        for row in view.jobs
    ]
    return table((Column("billed time"), *map(numbers, parts)), rows, screen)
