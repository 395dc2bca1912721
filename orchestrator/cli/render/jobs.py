"""Jobs, their status, events, logs and outputs as text."""

from __future__ import annotations

from orchestrator.cli.render.text import (
    Paint,
    blocks,
    clean,
    clipped,
    instant,
    moment,
    money,
    note_simulated,
    number,
    progress,
    rate,
    span,
    table,
)
from orchestrator.model import Run
from orchestrator.services.views import EventList, Fetched, JobList, JobView, LogLine, StatusView, short_zone

NOTE_WIDTH = 60
TO_GO_WIDTH = 24


def queue(view: JobList, paint: Paint) -> str:
    if not view.jobs:
        return "no jobs"
    rows = [
        (
            job.name,
            _state(job),
            progress(job.step, job.total_steps),
            number(job.loss),
            job.zone or "-",
            rate(job.nano_usd_per_hour),
            money(job.paid_nano_usd, 4),
            clipped(job.to_go, TO_GO_WIDTH),
            str(job.moves),
            clipped(job.quarantine or job.note, NOTE_WIDTH),
            job.id,
        )
        for job in view.jobs
    ]
    head = ("name", "state", "progress", "loss", "where", "price", "paid", "to go", "moves", "last", "id")
    total = f"{len(view.jobs)} job(s), {money(view.paid_nano_usd, 4)} paid"
    return blocks(
        table(head, rows, paint, right=(3, 5, 6, 8), state=1),
        paint(total, "dim"),
        paint(note_simulated(view.simulated), "dim"),
    )


def _state(job: JobView) -> str:
    return job.state if job.quarantine is None else "quarantined"


def job(view: JobView, paint: Paint) -> str:
    rows = [
        ("job", f"{view.name} ({view.id})"),
        ("state", view.state if view.quarantine is None else f"{view.state}, in quarantine"),
        ("progress", progress(view.step, view.total_steps)),
        ("loss", number(view.loss, 8)),
        ("objective", view.objective),
        ("submitted", instant(view.submitted_at_ms)),
        ("ended", instant(view.finished_at_ms)),
        ("deadline", instant(view.deadline_at_ms)),
        ("budget", money(view.budget_nano_usd)),
        ("runs on", view.offer_id or "-"),
        ("price", rate(view.nano_usd_per_hour)),
        ("paid", money(view.paid_nano_usd, 4)),
        ("to go", _to_go(view)),
        ("runs", f"{view.runs}, {view.moves} move(s), {view.steps_repeated} step(s) repeated"),
        ("why" if view.state == "paused" else "last", view.note),
    ]
    shown = [row for row in rows if row[1] not in ("-", "")]
    return blocks(table(("", ""), shown, paint, state=1), paint(note_simulated(view.simulated), "dim"))


def _to_go(view: JobView) -> str:
    """With the intervals."""
    foretold = view.forecast
    if foretold is None:
        return view.to_go
    cost = f"{money(foretold.cost_low_nano_usd, 4)} to {money(foretold.cost_high_nano_usd, 4)}"
    time = f"{span(foretold.duration_low_s)} to {span(foretold.duration_high_s)}"
    return f"{view.to_go} ({cost}, {time}, p5-p95)"


def status(view: StatusView, paint: Paint) -> str:
    migration = ""
    if view.migration is not None:
        move = view.migration
        migration = clean(f"moving to {move.offer_id}: step {move.step.value}, because {move.reason} ({move.id})")
    plane = "" if view.control_plane.running else "no control plane runs here, so nothing moves: tradewind up"
    happened = "\n".join(_event_lines(EventList(view.events), paint))
    return blocks(
        job(view.job, paint), paint(migration, "cyan") if migration else "", plane, "", _runs(view, paint), "", happened
    )


def _runs(view: StatusView, paint: Paint) -> str:
    if not view.runs:
        return "no runs yet"
    rows = [
        (
            str(i),
            short_zone(run.offer_id),
            _kind(run),
            run.end or run.state,
            _steps(run),
            _trained(run, view.at_ms),
            run.id,
        )
        for i, run in enumerate(view.runs, 1)
    ]
    return table(("run", "zone", "kind", "state", "steps", "trained", "id"), rows, paint, right=(0,))


def _kind(run: Run) -> str:
    return " ".join(run.offer_id.split("/")[3:])


def _steps(run: Run) -> str:
    again = f", {run.repeated_steps} again" if run.repeated_steps else ""
    return f"{run.start_step}-{run.last_step}{again}"


def _trained(run: Run, now_ms: int) -> str:
    if run.training_from_ms is None:
        return "-"
    return span(((run.training_to_ms or now_ms) - run.training_from_ms) / 1000)


def events(view: EventList, paint: Paint) -> str:
    return "\n".join(_event_lines(view, paint)) or "nothing has happened"


def _event_lines(view: EventList, paint: Paint) -> list[str]:
    return [
        f"{paint(moment(event.at_ms), 'dim')}  {event.kind:<20}  {clean(event.message)}  "
        f"{paint(f'[{clean(event.actor)}]', 'dim')}"
        for event in view.events
    ]


def log_line(view: LogLine, paint: Paint) -> str:
    """What a job prints; in a pipe every character of it, colours as well. On a terminal no colours but ours."""
    return f"{paint(f'{view.number} {view.zone} |', 'dim')} {view.text}"


def fetched(view: Fetched, paint: Paint) -> str:
    rows = [(file.path, f"{file.size_bytes:,}") for file in view.files]
    head = f"{len(view.files)} file(s) in {clean(view.folder)}"
    return blocks(table(("file", "bytes"), rows, paint, right=(1,)) if rows else "", head)
