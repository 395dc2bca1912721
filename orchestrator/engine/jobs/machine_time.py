"""The machine time that jobs sharing machines had, and the machines available to them.

Only time in which a job wanted a machine counts: not the time while a user had paused it, or before the jobs that it
waits for had finished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from orchestrator.engine.context import Context
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.inputs.snapshot import current_run
from orchestrator.model import TERMINAL, Event, Job, Run
from orchestrator.policy.time_sharing import History
from orchestrator.store import Tx
from providers.offer import provider_of

Span = tuple[int, int]
"""(begin, end) in market ms."""
_STOPPED, _RESUMED = "job.paused", "job.resumed"
_RELEASES = frozenset({"pausing", "cancelling", *TERMINAL})
"""The states of jobs whose machines are being released."""


def machine_times(ctx: Context, tx: Tx, jobs: Mapping[str, Job], window_s: float) -> dict[str, History]:
    """By job id, the machine time that each had in the last `window_s` (market seconds)."""
    runs, events = tx.runs_of(jobs), tx.events_of(jobs, (_STOPPED, _RESUMED))
    before = tx.job_facts_of({name for job in jobs.values() for name in job.after})
    found = {}
    for job_id, job in jobs.items():
        ended = [before[name].finished_at_ms or 0 for name in job.after if name in before]
        wanted = spans(max([job.submitted_at_ms, *ended]), events[job_id], ctx.now_ms)
        found[job_id] = history(runs[job_id], wanted, ctx.now_ms, window_s, leaves=job.state == "pausing")
    return found


def spans(from_ms: int, events: Sequence[Event], now_ms: int) -> list[Span]:
    """When a job wanted a machine, in order: since `from_ms`, except for its pauses. `events` are those that paused or
    resumed it, newest first."""
    found, since_ms = list[Span](), from_ms
    for event in reversed(events):
        if event.kind == _STOPPED and event.at_ms > since_ms >= 0:
            found.append((since_ms, event.at_ms))
        since_ms = -1 if event.kind == _STOPPED else max(event.at_ms, from_ms)
    return found if since_ms < 0 else [*found, (since_ms, max(now_ms, since_ms))]


def history(
    runs: Sequence[Run], wanted: Sequence[Span], now_ms: int, window_s: float, *, leaves: bool = False
) -> History:
    """The machine time in the last `window_s` (market seconds) of a job that `wanted` a machine in these spans.
    `leaves`: it is releasing its machine."""
    from_ms = now_ms - round(window_s * 1000)
    had_s: dict[str, float] = defaultdict(float)
    last_ms = wanted[-1][0] if wanted else now_ms
    for run in runs:
        if run.training_from_ms is not None:
            to_ms = now_ms if run.training_to_ms is None else run.training_to_ms
            had_s[run.offer_id] += max(to_ms - max(run.training_from_ms, from_ms), 0) / 1000
            last_ms = max(last_ms, to_ms)
    here = None if leaves else present_run(runs)
    began_ms = None if here is None else here.training_from_ms
    return History(
        age_s=sum(to_ms - since_ms for since_ms, to_ms in wanted) / 1000,
        waited_s=max(now_ms - last_ms, 0) / 1000,
        there_s=sum(max(to_ms - max(since_ms, from_ms), 0) for since_ms, to_ms in wanted) / 1000,
        had_s=had_s,
        on=None if here is None else here.offer_id,
        turn_s=0.0 if began_ms is None else (now_ms - began_ms) / 1000,
        start_s=0.0 if here is None or began_ms is None else max(began_ms - here.created_at_ms, 0) / 1000,
    )


def present_run(runs: Sequence[Run]) -> Run | None:
    """The run that owns the job, or else the newest run that will take it over; None if there is none. A standby does
    not count."""
    alive = [run for run in runs if run.end is None]
    return current_run(alive) or max(alive, key=lambda run: run.generation, default=None)


def known_of(ctx: Context, tx: Tx, jobs: Collection[str]) -> snapshot.Inputs:
    """The inputs of the policies for jobs that take turns, including those that pause to give way."""
    return snapshot.inputs(
        tx,
        ctx.now_ms,
        ctx.installation.config,
        only=list(jobs),
        also=("pausing",),
        markets=ctx.markets,
        speeds=ctx.speeds,
        used=ctx.used_offers,
        together=True,
    )


def machines_at_hand(
    ctx: Context, tx: Tx, sharing: Collection[str], *, of: Collection[str] | None = None
) -> tuple[list[tuple[str, int]], list[Run]]:
    """(the machines that count as free for the jobs that are `sharing`, pairs of (offer id, how many); the other runs
    with machines). These are the machines that these jobs have, and those that are being released: by any job, or only
    by the jobs in `of`. A machine that has ended counts until its provider reports that it is free."""
    work, asked_ms = ctx.work, tx.quotas_asked_ms()
    here = {run.id for job_id, runs in work.runs_by_job().items() if job_id in sharing and (run := present_run(runs))}
    leaving = {job_id for job_id, job in work.jobs.items() if job.state in _RELEASES}
    sound = {job_id for job_id in work.jobs if job_id not in work.quarantined and (of is None or job_id in of)}
    up = [run for run in work.runs if run.billed_to_ms is None]
    at_hand = [
        run for run in up if run.job_id in sound and (run.end is not None or run.job_id in leaving or run.id in here)
    ]
    ended = [
        run
        for runs in tx.runs_of(sharing).values()
        for run in runs
        if run.billed_to_ms is not None
        and run.created_at_ms < asked_ms.get(provider_of(run.offer_id), 0) <= run.billed_to_ms
    ]
    counted = {run.id for run in at_hand}
    return [(run.offer_id, run.nodes) for run in (*at_hand, *ended)], [run for run in up if run.id not in counted]
