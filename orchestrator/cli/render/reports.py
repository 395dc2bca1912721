"""The report as text: one row per job, the exact totals, and where the billed time went."""

from __future__ import annotations

from orchestrator.cli.render.text import Paint, blocks, clean, money, note_simulated, number, progress, span, table
from orchestrator.ledger import Duty, total_nano_usd
from orchestrator.services.views import JobReport, ReportView


def report(view: ReportView, paint: Paint) -> str:
    if not view.jobs:
        return "no jobs"
    head = (
        "job",
        "state",
        "progress",
        "runs",
        "moves",
        "repeated",
        "time",
        "real",
        "paid",
        "on-demand",
        "saved",
        "loss",
    )
    rows = [_row(row) for row in view.jobs]
    totals = (money(total, 6) for total in (view.paid_nano_usd, view.baseline_nano_usd, view.saving_nano_usd))
    rows.append(("total", *[""] * 7, *totals, ""))
    duties = [(row.job.name, *_duty(row.duty)) for row in view.jobs]
    real = f"1 real second is {view.clock_factor:g} market seconds; " if view.clock_factor != 1 else ""
    verdicts = [f"{clean(row.job.name)}: {row.verdict}" for row in view.jobs]
    corrections = [entry for entry in view.entries if entry.kind == "correction"]
    entries = f"{len(view.entries)} ledger entries"
    if corrections:
        entries += f" ({len(corrections)} of them corrections, of {money(total_nano_usd(corrections), 6)})"
    return blocks(
        table(head, rows, paint, right=range(2, 12), state=1),
        "",
        *verdicts,
        "",
        table(("billed time of", *DUTIES, "sum"), duties, paint, right=range(1, 8)),
        "",
        paint(f"{real}paid is the exact sum of {entries} (--csv shows them)", "dim"),
        paint(note_simulated(view.simulated), "dim"),
    )


DUTIES = ("useful", "checkpoint", "lost work", "provisioning", "migration", "idle")


def _row(row: JobReport) -> tuple[str, ...]:
    job = row.job
    return (
        job.name,
        job.state,
        progress(job.step, job.total_steps),
        str(job.runs),
        str(job.moves),
        str(job.steps_repeated),
        span(row.duration_s),
        span(row.duration_wall_s),
        money(row.paid_nano_usd, 6),
        money(row.baseline_nano_usd, 6),
        money(row.saving_nano_usd, 6),
        number(job.loss, 6),
    )


def _duty(duty: Duty) -> tuple[str, ...]:
    parts = (
        duty.useful_ms,
        duty.checkpoint_ms,
        duty.lost_work_ms,
        duty.provisioning_ms,
        duty.migration_ms,
        duty.idle_ms,
        duty.total_ms,
    )
    return tuple(span(part / 1000) for part in parts)
