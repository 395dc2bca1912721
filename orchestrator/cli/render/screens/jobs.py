"""Jobs, their status, events, logs and outputs as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from orchestrator.cli.render.screens.job_reasons import has_reason, reasons
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    amount,
    between,
    blocks,
    budget_amount,
    capacity,
    clean,
    finish_range,
    instant,
    machine,
    moment,
    next_page,
    note_simulated,
    number,
    progress,
    rate,
    span,
    where,
)
from orchestrator.formats.readable import unique_labels
from orchestrator.model import Event, Run
from orchestrator.services.views import EventList, Fetched, JobList, JobView, LogLine, StatusView

EVENTS = (Column(""), Column("", 2), Column("", 1), Column("", text=True))  # no headings: batches follow each other
SHOWN_REQUESTS = 8
SHORT_REASON = len("not measured yet")
QUEUE = (
    Column("name"),
    Column("state", state=True),
    numbers("done"),
    numbers("steps", 6),
    numbers("loss", 8),
    Column("where", 2),
    numbers("price", 5),
    numbers("paid"),
    Column("to go", 1),
    numbers("migrations", 7),
    Column("last", 4, text=True),
    Column("id", wide=True),
)
GROUP = tuple(replace(column, drop=1) if column.head == "loss" else column for column in QUEUE)
"""Columns for the jobs of one group: their names contain the values of the matrix, and their losses are compared."""


def queue(view: JobList, screen: Screen) -> str:
    """The table of jobs, or how many have ended if none is live."""
    if not view.jobs:
        listing = re.sub(r" --cursor[= ]\S+", "", screen.command) or "tradewind queue"
        return f"{view.ended} ended: {listing} --all" if view.ended else "no jobs"
    rows = queue_rows(view.jobs, screen)
    of_group = view.jobs[0].group_id is not None and len({job.group_id for job in view.jobs}) == 1
    page = " on this page" if view.next_cursor is not None or "--cursor" in screen.command else ""
    total = f"{len(view.jobs)} {'job' if len(view.jobs) == 1 else 'jobs'}{page}, {amount(view.paid_nano_usd)} paid"
    return blocks(
        table(GROUP if of_group else QUEUE, rows, screen),
        screen(total, "dim"),
        screen("\n".join(job_reasons(view.jobs, screen)), "yellow"),
        screen(late_jobs(view.jobs), "yellow"),
        _requests(view.jobs),
        screen(next_page(screen.command, view.next_cursor), "dim"),
        screen(note_simulated(view.simulated), "dim"),
    )


def queue_rows(jobs: Sequence[JobView], screen: Screen) -> list[tuple[str, ...]]:
    """Jobs in the columns of QUEUE. On a screen with a limit, `job_reasons` has what the column of notes may not."""
    names = unique_labels((job.id, job.name) for job in jobs)
    below = screen.limit is not None
    return [_queue_row(job, names[job.id], noted=not (below and has_reason(job))) for job in jobs]


def job_reasons(jobs: Sequence[JobView], screen: Screen) -> list[str]:
    """Why these jobs wait, are paused or need attention, for below the table; their names are as in the table."""
    return reasons(jobs, unique_labels((job.id, job.name) for job in jobs), screen)


def _queue_row(job: JobView, name: str, *, noted: bool) -> tuple[str, ...]:
    return (
        name,
        _state(job),
        _share(job),
        f"{job.step}/{job.total_steps}" if job.total_steps else str(job.step),
        number(job.loss),
        job.zone or "-",
        rate(job.nano_usd_per_hour),
        amount(job.paid_nano_usd),
        _to_go_in_short(job),
        str(job.migrations),
        job.note if noted else "",
        job.id,
    )


def _to_go_in_short(job: JobView) -> str:
    """A short form: a long reason for a missing forecast would take up the space of other columns. `status` shows all
    of it."""
    said = job.to_go
    if job.forecast is not None or len(said) <= SHORT_REASON:
        return said
    begins = re.split("[:;,]", said)[0]
    return begins if len(begins) <= SHORT_REASON else "not known"


def late_jobs(jobs: Sequence[JobView]) -> str:
    """The jobs that are expected to miss their deadlines, one per line; empty if there are none."""
    names = unique_labels((job.id, job.name) for job in jobs)
    lines = [f"{clean(names[job.id])}: {job.lateness}" for job in jobs if job.late_s is not None]
    hidden = len(lines) - SHOWN_REQUESTS
    return "\n".join([*lines[:SHOWN_REQUESTS], *[f"and {hidden} more jobs are late"] * (hidden > 0)])


def _requests(jobs: Sequence[JobView]) -> str:
    """Requests that no control plane has carried out yet: the column of notes does not fit on a narrow screen."""
    asking = [(kind, job) for job in jobs for kind in job.requested]
    called = unique_labels((job.id, job.name) for job in jobs)
    names = ", ".join(f"{kind} {clean(called[job.id])}" for kind, job in asking[:SHOWN_REQUESTS])
    more = f" and {len(asking) - SHOWN_REQUESTS} more" if len(asking) > SHOWN_REQUESTS else ""
    return f"requested, not carried out yet: {names}{more}" if asking else ""


def _share(job: JobView) -> str:
    return job.percent_done or f"{job.step} steps"


def _state(job: JobView) -> str:
    return job.state if job.quarantine is None else "quarantined"


def job(view: JobView, screen: Screen, *, unbooked_nano_usd: int = 0) -> str:
    """One job, one field per line."""
    unbooked = f", and about {amount(unbooked_nano_usd)} not booked yet" if unbooked_nano_usd else ""
    rows = [
        ("job", f"{view.name} ({view.id})"),
        ("state", view.state if view.quarantine is None else f"{view.state}, in quarantine"),
        ("progress", progress(view)),
        ("loss", number(view.loss, 8)),
        ("objective", view.objective),
        ("submitted", instant(view.submitted_at_ms)),
        ("ended", instant(view.finished_at_ms)),
        ("deadline", _deadline(view)),
        ("budget", budget_amount(view.budget_nano_usd)),
        ("runs on", view.offer_id or "-"),
        ("price", rate(view.nano_usd_per_hour)),
        ("paid", amount(view.paid_nano_usd) + unbooked),
        ("to go", _to_go(view)),
        ("runs", f"{view.runs} trained; migrations: {view.migrations}; steps repeated: {view.steps_repeated}"),
        ("why" if view.state == "paused" else "last", view.note),
    ]
    shown = [row for row in rows if row[1] not in ("-", "")]
    columns = (Column(""), Column("", text=True, state=True))
    return blocks(table(columns, shown, screen), screen(note_simulated(view.simulated), "dim"))


def _deadline(view: JobView) -> str:
    at = instant(view.deadline_at_ms)
    return at if view.late_s is None else f"{at}, {view.lateness}"


def _to_go(view: JobView) -> str:
    """The cost and time to finish, with their intervals."""
    foretold = view.forecast
    if foretold is None:
        return view.to_go
    cost = between(amount(foretold.cost_low_nano_usd), amount(foretold.cost_high_nano_usd))
    left_s = None if view.deadline_at_ms is None else (view.deadline_at_ms - foretold.at_ms) / 1000
    time = finish_range(foretold.duration_low_s, foretold.duration_high_s, left_s)
    intervals = ", ".join(filter(None, (cost, time)))
    return f"{view.to_go} ({intervals}, p5-p95)" if intervals else view.to_go


def status(view: StatusView, screen: Screen) -> str:
    """One job with its runs, its move in progress and its latest events."""
    migration = ""
    if view.migration is not None:
        move = view.migration
        migration = clean(f"moving to {move.offer_id}: step {move.step.value}, because {move.reason} ({move.id})")
    return blocks(
        job(view.job, screen, unbooked_nano_usd=view.unbooked_nano_usd),
        screen(migration, "cyan") if migration else "",
        view.control_plane.to_go_on,
        " ",
        _runs(view, screen),
        " ",
        "\n".join(event_lines(view.events, screen)),
    )


def _runs(view: StatusView, screen: Screen) -> str:
    if not view.runs:
        return "no runs yet"
    rows = [
        (
            str(i),
            where(run.offer_id),
            machine(run.offer_id),
            capacity(run.offer_id),
            run.end or run.state,
            _steps(run),
            _trained(run, view.at_ms),
            run.id,
        )
        for i, run in enumerate(view.runs, 1)
    ]
    columns = (
        numbers("run"),
        Column("where"),
        Column("machine", 2),
        Column("type", 3),
        Column("state", state=True),
        Column("steps"),
        Column("trained", 1),
        Column("id", wide=True),
    )
    return table(columns, rows, screen)


def _steps(run: Run) -> str:
    again = f", {run.repeated_steps} again" if run.repeated_steps else ""
    return f"{run.start_step}-{run.last_step}{again}"


def _trained(run: Run, now_ms: int) -> str:
    if run.training_from_ms is None:
        return "-"
    return span(((run.training_to_ms or now_ms) - run.training_from_ms) / 1000)


def log_line(view: LogLine, screen: Screen) -> str:
    """A line that a job printed: unchanged in a pipe, including colours; on a terminal only with our colours."""
    where = f"[machine {view.machine}] " if view.rank is None and view.machine > 0 else ""
    return f"{screen(f'{view.number} {view.zone} |', 'dim')} {where}{view.text}"


def fetched(view: Fetched, screen: Screen) -> str:
    """Where the outputs are now, and which are missing."""
    rows = [(file.path, f"{file.size_bytes:,}") for file in view.files]
    head = f"{len(view.files)} {'file' if len(view.files) == 1 else 'files'} in {clean(view.folder)}"
    aside = ""
    if view.aside:
        first = ", ".join(clean(path) for path in view.aside[:3]) + (", ..." if len(view.aside) > 3 else "")
        aside = (
            "several machines wrote files with the same name; these are from the machine with the lowest number. "
            f"Fetch the others by name: {first}"
        )
    return blocks(table((Column("file"), numbers("bytes")), rows, screen) if rows else "", head, aside)


def events(view: EventList, screen: Screen) -> str:
    """The audit trail, oldest first."""
    if not view.events:
        return "no events yet"
    earlier = next_page(screen.command, view.next_cursor, "earlier events")
    return blocks(*event_lines(view.events, screen, view.names), screen(earlier, "dim"))


def event_lines(found: Sequence[Event], screen: Screen, names: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """One line for each event, folded to the screen; with the name of its job if `names` has any."""
    rows = []
    for each in found:
        whose = [names.get(each.job_id or "", "-")] if names else []
        rows.append((moment(each.at_ms), *whose, each.kind, each.actor, each.message))
    columns = (EVENTS[0], *[Column("")] * bool(names), *EVENTS[1:])
    return table(columns, rows, screen).splitlines() if rows else []
