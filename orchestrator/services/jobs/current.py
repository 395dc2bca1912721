"""The current state of jobs: `queue`, `status` and the figures of single jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypedDict

from orchestrator.engine.billing.machine_cost import job_cost_nano_usd
from orchestrator.engine.inputs.snapshot import current_run, left_out
from orchestrator.engine.jobs.pausing import to_continue
from orchestrator.engine.jobs.standstill import NOT_FINITE, STALLED, last_loss_not_finite
from orchestrator.engine.jobs.stopped_at import where_stopped
from orchestrator.engine.migration.move import attempt_failed, waits
from orchestrator.errors import UnreadableRowError
from orchestrator.installation import Installation
from orchestrator.model import (
    TERMINAL,
    Event,
    Job,
    JobForecast,
    Migration,
    Run,
    Step,
    latest_trained,
    steps_done,
    trained,
)
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.jobs.forecasts import forecasts
from orchestrator.services.jobs.objective import groups_of, objective_of
from orchestrator.services.paging import Cursors, checked_limit
from orchestrator.services.views import JobList, JobView, StatusView
from orchestrator.store import Command, GroupOutline, Interval, JobFacts, LedgerSum, Tx
from providers.money import format_usd
from providers.offer import provider_of
from providers.traits import traits_of

_PAUSES = ("job.paused", "job.resumed")
_BUDGET = "job.budget"
_ENDS = ("job.finished", "job.failed", "job.cancelled")
_ADVICE = re.compile("; to (?:continue|set it): tradewind (?:budget set|resume) ")


class _Foretold(TypedDict, total=False):
    forecast: JobForecast
    no_forecast: str


_STALLED_OUTSIDE: Mapping[object, str] = {
    "begin": "has not started to train",
    "save": "is stuck in a save",
    "end": "has not exited after its last step",
}
_NO_STEP = "its program ended without reporting a step"


@dataclass(frozen=True, slots=True)
class _Position:
    """A job's position in the list of all jobs."""

    submitted_at_ms: int
    id: str


_CURSORS = Cursors("jobs", _Position)


def jobs(
    installation: Installation,
    *,
    ended: bool = False,
    project: str | None = None,
    group: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> JobList:
    """Jobs of a project (None: of all) and of a group, by its name or id, oldest first; ended jobs only on request.
    Raises UsageError for an invalid limit or cursor, NotFoundError for an unknown group."""
    filters, most = {"ended": ended, "project": project}, checked_limit(limit)
    if group is not None:
        filters |= {"group": group}
    after = _CURSORS.read(cursor, filters)
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        place = None if after is None else (after.submitted_at_ms, after.id)
        ended_of_group = 0
        if group is None:
            found = tx.outlines(project=project, ended=ended, after=place, limit=None if most is None else most + 1)
        else:
            members = [each for each in _members(tx, group, project) if project in (None, each.project)]
            ended_of_group = sum(each.state in TERMINAL for each in members)
            found = [each for each in members if ended or each.state not in TERMINAL]
            found = [each for each in found if place is None or _key(each) > place]
        page = found[:most]
        views = job_views(installation, tx, page, forecasts(installation, tx, page))
        hidden = 0 if ended else tx.count_ended(project) if group is None else ended_of_group
    return JobList(
        at_ms=now,
        jobs=views,
        paid_nano_usd=sum(view.paid_nano_usd for view in views),
        simulated=any(view.simulated for view in views),
        ended=hidden,
        next_cursor=_CURSORS.write(_Position(*_key(page[-1])), filters) if len(page) < len(found) else None,
    )


def _members(tx: Tx, group: str, project: str | None) -> list[Job]:
    return sorted(tx.outlines_of(tx.job_ids_of_group(tx.find_group(group, project).id)), key=_key)


def _key(job: Job) -> tuple[int, str]:
    return job.submitted_at_ms, job.id


def job(installation: Installation, ref: str) -> JobView:
    """One job by id or name. Raises NotFoundError."""
    with installation.store.read() as tx:
        return job_view(installation, tx, tx.find_job(ref))


def status(installation: Installation, ref: str, *, events: int = 8) -> StatusView:
    """One job in detail, with its last `events` events. Raises NotFoundError."""
    with installation.store.read() as tx:
        found = tx.find_job(ref)
        newest = tx.events(job_id=found.id, limit=events, newest_first=True)
        open_ones = tx.migrations(job_id=found.id, open=True, unreadable=left_out)
        now_ms, runs = installation.clock.now_ms(), tuple(tx.runs(job_id=found.id, unreadable=left_out))
        view = job_view(installation, tx, found, forecasts(installation, tx, [found])[found.id])
        unsettled = tx.runs(job_id=found.id, unsettled=True, unreadable=left_out)
        try:
            unbooked = job_cost_nano_usd(tx, found.id, unsettled, now_ms) - view.paid_nano_usd
        except ValueError:  # a price is unknown for part of the time
            unbooked = 0
        return StatusView(
            at_ms=now_ms,
            job=view,
            runs=runs,
            migration=next((each for each in open_ones if not waits(each)), None),
            events=tuple(reversed(newest)),
            control_plane=control_plane(installation),
            unbooked_nano_usd=max(0, unbooked),
        )


def job_view(installation: Installation, tx: Tx, job: Job, said: JobForecast | str | None = None) -> JobView:
    """The figures of one job."""
    return job_views(installation, tx, [job], {} if said is None else {job.id: said})[0]


@dataclass(frozen=True)
class JobRecord:
    """What is stored about a job.

    `newest` is its newest event, or the one with which it ended: a move may be completed after that. `booked` are its
    ledger sums; `price` is the price of the offer where it runs now, in nano-USD per hour; `pause` is
    its newest pause or resume event; `reported` has the newest event of each kind that warns about its trainer;
    `requested` are the commands that no control plane has carried out yet, the newest of each kind. `typed_name` is
    how commands name the job; empty unless its note needs it.
    """

    runs: Sequence[Run]
    facts: JobFacts
    booked: Sequence[LedgerSum]
    migrations: Sequence[Migration]
    price: int | None
    newest: Event | None
    pause: Event | None
    budget: Event | None
    reported: Mapping[str, Event]
    requested: Sequence[Command]
    typed_name: str = ""

    @property
    def paid_nano_usd(self) -> int:
        """What the job has cost."""
        return sum(each.amount_nano_usd for each in self.booked)


def job_views(
    installation: Installation,
    tx: Tx,
    jobs: Sequence[Job],
    said: Mapping[str, JobForecast | str],
    records: Mapping[str, JobRecord] | None = None,
) -> tuple[JobView, ...]:
    """The views of these jobs, with the forecasts in `said`. `records` are read if they are not given."""
    found = job_records(installation, tx, jobs) if records is None else records
    groups = groups_of(tx, jobs)
    return tuple(_view(installation, job, found[job.id], said.get(job.id), groups) for job in jobs)


def late_s(job: Job | JobView, said: JobForecast | str | None, now_ms: int) -> float | None:
    """How many seconds after its deadline a job is expected to finish, by a forecast that may be older than `now_ms`;
    without a forecast, how long ago the deadline passed. None if it is not late, or if this is unknown."""
    if job.deadline_at_ms is None or job.state in TERMINAL:
        return None
    ends_ms = now_ms
    if isinstance(said, JobForecast):
        ends_ms = max(now_ms, said.at_ms + round(said.duration_s * 1000))
    return (ends_ms - job.deadline_at_ms) / 1000 if ends_ms > job.deadline_at_ms else None


def job_records(installation: Installation, tx: Tx, jobs: Sequence[Job]) -> dict[str, JobRecord]:
    """The stored data of these jobs, by job id, in a fixed number of queries. Raises RowError, also if the damaged id
    of a job matches no row."""
    ids, now_ms = [job.id for job in jobs], installation.clock.now_ms()
    runs, migrations = tx.runs_of(ids, left_out), tx.migrations_of(ids, left_out)
    facts, newest = tx.job_facts_of(ids), tx.newest_events(ids)
    if lost := set(ids) - facts.keys():
        raise UnreadableRowError("job", min(lost), "id: it matches no row")
    booked: dict[str, list[LedgerSum]] = {job_id: [] for job_id in ids}
    for each in tx.ledger_sums(ids):
        booked[each.job_id].append(each)
    alive = {job_id: run for job_id in ids if (run := current_run(runs[job_id])) is not None}
    requested: dict[str | None, dict[str, Command]] = {}
    for command in tx.open_commands():  # a later command of the same kind replaces it
        requested.setdefault(command.job_id, {})[command.kind] = command
    asked = [Interval(run.offer_id, now_ms, now_ms + 1) for run in alive.values()]
    prices = dict(zip(alive, tx.price_changes_of(asked), strict=True))
    of_interest = {*alive, *(job.id for job in jobs if job.state == "paused" or _without_loss(job, runs[job.id]))}
    ended = {job.id for job in jobs if job.state in TERMINAL and _ends_with_another(newest.get(job.id))}
    events = tx.events_of(of_interest | ended, (STALLED, NOT_FINITE, _BUDGET, *_PAUSES, *_ENDS))
    newest |= {job_id: event for job_id in ended if (event := _end_among(events[job_id])) is not None}
    pauses = {
        job_id: next((event for event in events.get(job_id, ()) if event.kind in _PAUSES), None) for job_id in ids
    }
    unsaid = [job for job in jobs if facts[job.id].quarantine is not None or _ended_at_once(job, pauses[job.id])]
    typed = tx.typed_names(unsaid)
    return {
        job_id: JobRecord(
            runs=runs[job_id],
            facts=facts[job_id],
            booked=booked[job_id],
            migrations=migrations[job_id],
            price=alive[job_id].nodes * changes[-1][1] if (changes := prices.get(job_id)) else None,
            newest=newest.get(job_id),
            pause=pauses[job_id],
            budget=_budget_since_pause(events.get(job_id, ())),
            reported={
                event.kind: event for event in reversed(events.get(job_id, []))
            },  # the newest of each kind is last
            requested=tuple(requested.get(job_id, {}).values()),
            typed_name=typed.get(job_id, ""),
        )
        for job_id in ids
    }


def _ended_at_once(job: Job, pause: Event | None) -> bool:
    """Whether a job is paused, but by no event of its own: all machines were ended at once. `pause`: its newest pause
    or resume."""
    return job.state == "paused" and (pause is None or pause.kind != "job.paused")


def _ends_with_another(newest: Event | None) -> bool:
    """Whether the newest event of an ended job does not say how it ended."""
    return newest is not None and newest.kind not in _ENDS


def _end_among(events: Sequence[Event]) -> Event | None:
    """The newest event that says how a job ended. `events`: newest first."""
    return next((event for event in events if event.kind in _ENDS), None)


def _budget_since_pause(events: Sequence[Event]) -> Event | None:
    """The newest change of the budget after the newest pause or resume. `events`: newest first."""
    since = takewhile(lambda event: event.kind not in _PAUSES, events)
    return next((event for event in since if event.kind == _BUDGET), None)


def _view(
    installation: Installation,
    job: Job,
    known: JobRecord,
    said: JobForecast | str | None,
    groups: Mapping[str, GroupOutline],
) -> JobView:
    group = groups.get(job.group_id or "")
    runs, facts = known.runs, known.facts
    alive = current_run(runs)
    step = _step(job, runs)
    there = [run.last_loss for run in runs if run.start_step < run.last_step == step]
    total_steps = job.spec.train.steps if facts.total_steps is None else facts.total_steps
    warnings = _warnings(known.reported, alive) if alive is not None else _failures(job, runs, facts)
    if job.state == "finished" and step == 0 and total_steps:
        warnings = (_NO_STEP,)
    elif _without_loss(job, runs):
        warnings = _not_finite_at_the_end(known.reported, latest_trained(runs))
    return JobView(
        id=job.id,
        name=job.name,
        project=job.project,
        owner=job.owner,
        state=job.state,
        objective=objective_of(job, groups),
        submitted_at_ms=job.submitted_at_ms,
        finished_at_ms=facts.finished_at_ms,
        deadline_at_ms=job.deadline_at_ms,
        budget_nano_usd=job.spec.budget_nano_usd,
        step=step,
        total_steps=total_steps,
        loss=there[-1] if there else None,
        offer_id=alive.offer_id if alive is not None else None,
        nano_usd_per_hour=known.price,
        paid_nano_usd=known.paid_nano_usd,
        runs=len(trained(runs)),
        migrations=len(moved(runs, known.migrations)),
        steps_repeated=sum(run.repeated_steps for run in runs),
        simulated=any(simulated(installation, run.offer_id) for run in runs) or (not runs and installation.simulated),
        note=_noted(warnings, _note(job, known), map(_request, known.requested)),
        quarantine=facts.quarantine,
        warnings=warnings,
        group_id=job.group_id,
        group=None if group is None else group.name,
        requested=tuple(each.kind for each in known.requested),
        late_s=late_s(job, said, installation.clock.now_ms()),
        **_foretold(said),
    )


def why_nothing_ran(job: JobView) -> str | None:
    """A sentence about a job that has not run; None if it has."""
    if job.runs:
        return None
    return f"{job.name} {'has not run yet' if job.finished_at_ms is None else 'never ran'}: {job.note}"


def _foretold(said: JobForecast | str | None) -> _Foretold:
    if said is None:
        return {}
    return {"no_forecast": said} if isinstance(said, str) else {"forecast": said, "no_forecast": ""}


def _failures(job: Job, runs: Sequence[Run], facts: JobFacts) -> tuple[str, ...]:
    """The warnings of a job whose latest run failed and is retried."""
    over = [run for run in runs if run.end not in (None, "aborted")]
    newest = max(over, key=lambda run: run.generation, default=None)
    if newest is None or newest.end != "failed" or job.state in TERMINAL:
        return ()
    return (attempt_failed(job, facts.failures, facts.error or ""),)


def _warnings(reported: Mapping[str, Event], run: Run) -> tuple[str, ...]:
    """The warnings that still apply to the run: no step since it was reported as stalled, or a loss that is still
    NaN."""
    stalled, diverged = reported.get(STALLED), reported.get(NOT_FINITE)
    warnings = []
    if stalled is not None and stalled.run_id == run.id and stalled.data.get("step") == run.last_step:
        warnings.append(_STALLED_OUTSIDE.get(stalled.data.get("awaited"), f"stuck at step {run.last_step}"))
    if diverged is not None and diverged.run_id == run.id and run.last_loss is None:
        warnings.append("its loss is not a number")
    return tuple(warnings)


def _without_loss(job: Job, runs: Sequence[Run]) -> bool:
    """Whether a job finished without a last loss: none was reported, or it was not finite."""
    latest = latest_trained(runs) if job.state == "finished" else None
    return latest is not None and latest.last_loss is None


def _not_finite_at_the_end(reported: Mapping[str, Event], run: Run | None) -> tuple[str, ...]:
    diverged = reported.get(NOT_FINITE)
    if diverged is None or run is None or diverged.run_id != run.id:
        return ()
    return (last_loss_not_finite(diverged.data.get("step")),)


def _noted(warnings: Sequence[str], said: str, requested: Iterable[str]) -> str:
    """All notes, without warnings that `said` already contains."""
    return "; ".join(dict.fromkeys([*(each for each in warnings if each not in said), said, *requested]))


def _request(command: Command) -> str:
    amount, target = command.args.get("nano_usd"), command.args.get("offer_id")
    about = f" of {format_usd(amount)}" if isinstance(amount, int) else f" to {target}" if target else ""
    return f"{command.kind}{about} requested"


def _note(job: Job, known: JobRecord) -> str:
    """The reason for a quarantine, or for a pause and the budget set since, with the commands that end it; else the
    latest event."""
    if known.facts.quarantine is not None:
        return f"quarantined: {known.facts.quarantine}{_out_of_quarantine(job, known.typed_name)}"
    if _ended_at_once(job, known.pause):
        where = where_stopped(known.runs)
        return f"paused {where}: all machines here were ended at once{to_continue(known.typed_name)}"
    if job.state == "paused" and known.pause is not None:
        if known.budget is None:
            return known.pause.message
        why, *_ = _ADVICE.split(known.pause.message)  # the budget's event names the next command
        return f"{why}; since then: {known.budget.message}"
    return known.newest.message if known.newest is not None else ""


def _out_of_quarantine(job: Job, typed_name: str) -> str:
    """The commands that end a quarantine; begins with a semicolon. Empty while the job is being cancelled."""
    if job.state == "cancelling":
        return ""
    if job.state in TERMINAL:
        return f"; to end the quarantine: tradewind resume {typed_name}"
    return f"{to_continue(typed_name)}, or to end it: tradewind cancel {typed_name}"


def _step(job: Job, runs: Sequence[Run]) -> int:
    """The job's current or last step."""
    latest = latest_trained(runs)
    return latest.last_step if latest is not None and job.state in TERMINAL else steps_done(runs)


def moved(runs: Sequence[Run], migrations: Sequence[Migration]) -> list[Migration]:
    """The migrations that moved a job to another machine. Resuming after a pause does not count."""
    where = {run.id: run.instance_id for run in runs}
    return [
        each
        for each in migrations
        if each.step is Step.DONE
        and each.source_run_id is not None
        and each.reason != "resume"
        and where.get(each.source_run_id, each.source_run_id) != where.get(each.target_run_id, each.target_run_id)
    ]


def simulated(installation: Installation, offer_id: str) -> bool:
    """Whether an offer's price and machine are simulated. For a provider that is no longer enabled, its name
    decides."""
    name = provider_of(offer_id)
    provider = installation.providers.get(name)
    return provider.simulated if provider is not None else traits_of(name).simulated
