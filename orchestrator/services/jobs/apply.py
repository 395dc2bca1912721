"""Applies a reviewed plan, or refuses it and says what changed since."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import NotFoundError, Problem, SpecError, StalePlanError, UsageError
from orchestrator.formats.codec import CodecError
from orchestrator.formats.documents import codec_of
from orchestrator.formats.whole_file import write_whole
from orchestrator.installation import Installation
from orchestrator.jobfile import require_sayable
from orchestrator.model import ACTION_WORDS, ACTION_WORDS_ON, TERMINAL, Job, Pick, is_id
from orchestrator.policy import plan_id
from orchestrator.services.caller import Caller
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.jobs.code import uploaded
from orchestrator.services.jobs.feasible import require_startable
from orchestrator.services.jobs.plan import freshen, plan_view, planned
from orchestrator.services.jobs.submit import add_jobs, make_checkpoint_folder
from orchestrator.services.views import Accepted, Decision, PlanView
from providers.money import format_usd
from providers.offer import OfferId

PLAN_FILE = codec_of(PlanView)
AGAIN = "correct the job file and make a new plan: tradewind plan FILE -o PLAN"
PRICE_TOLERANCE = 0.02  # a chosen offer may become this much more expensive before the plan is stale


def save(view: PlanView, path: Path) -> None:
    """Writes a plan document. Raises UsageError if it cannot be written or could never be applied."""
    if view.anywhere:
        raise UsageError(
            "a plan for clouds that are not enabled cannot be saved, because it cannot be applied",
            hint="use --output json to write it to stdout",
        )
    try:
        write_whole(path, PLAN_FILE.dumps(view, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="choose another path") from error


def load(installation: Installation, path: Path) -> PlanView:
    """Reads a plan document and checks its values like those of a job file. Raises NotFoundError, SpecError."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: the path has a NUL character
        reason = getattr(error, "strerror", None) or str(error)
        raise NotFoundError(f"{path}: {reason}", hint="make one: tradewind plan FILE -o PLAN") from error
    try:
        saved = PLAN_FILE.loads(content)
    except CodecError as error:
        raise SpecError([Problem(str(path), 0, 0, error.path, error.reason, AGAIN)]) from error
    now = installation.clock.now_ms()
    _require_as_made(saved, str(path), now)
    new = tuple(Job(job.id, job.spec, "", now, "queued") for job in saved.new_jobs)
    with installation.store.read() as tx:
        placed = {placement.job_id for placement in saved.plan.placements}
        jobs = {job.id: job for job in (*tx.outlines_of(placed), *new)}
        view = plan_view(installation, tx, saved.plan, jobs, new, now)
    reviewed = {each.job_id: each for each in saved.decisions}
    decisions = tuple(
        replace(each, front=reviewed[each.job_id].front, picks=reviewed[each.job_id].picks)
        if each.job_id in reviewed
        else each
        for each in view.decisions
    )
    clouds, unrentable = saved.not_enabled, saved.no_provider
    return replace(view, decisions=decisions, anywhere=saved.anywhere, not_enabled=clouds, no_provider=unrentable)


def _require_as_made(saved: PlanView, path: str, now_ms: int) -> None:
    """A plan file can be edited, so its content is not trusted: its jobs must pass the checks of job files, and its
    decisions must match its id, which is derived from them. Raises SpecError."""
    problems = []
    plan = saved.plan
    if plan.id != plan_id(plan.at_ms, plan.market_digest, plan.simulated, plan.placements):
        problems.append(Problem(path, 0, 0, "plan", "was changed since the plan was made", AGAIN))
    decided = [each.job_id for each in plan.placements]
    for index, job in enumerate(saved.new_jobs):
        field = f"new_jobs[{index}]"
        if not is_id("job", job.id) or decided.count(job.id) != 1:
            problems.append(Problem(path, 0, 0, f"{field}.id", "is not the id of exactly one job of the plan", AGAIN))
        try:
            require_sayable(job.spec, path, f"{field}.spec", AGAIN, now_ms=now_ms)
        except SpecError as error:
            problems += error.problems
    if len({job.id for job in saved.new_jobs}) < len(saved.new_jobs):
        problems.append(Problem(path, 0, 0, "new_jobs", "has the same job twice", AGAIN))
    for index, decision in enumerate(saved.decisions):
        if not all(map(_possible, (*decision.front, *decision.picks))) or None in [p.offer_id for p in decision.front]:
            wrong = "front or picks have an impossible offer, cost or duration"
            problems.append(Problem(path, 0, 0, f"decisions[{index}]", wrong, AGAIN))
    if problems:
        raise SpecError(problems)


def _possible(pick: Pick) -> bool:
    try:
        return (
            (pick.offer_id is None or bool(OfferId.parse(pick.offer_id)))
            and (pick.cost_nano_usd or 0) >= 0
            and 0 <= (pick.duration_s or 0.0) < math.inf
        )
    except ValueError:  # not an offer id
        return False


def check(installation: Installation, reviewed: PlanView) -> None:
    """Raises StalePlanError with every difference, unless the decisions would be the same now; InfeasibleError."""
    require_startable(reviewed)
    moved = _gone(installation, reviewed)
    if not moved:
        freshen(installation)
        today = planned(installation, reviewed.new_jobs, only=[d.job_id for d in reviewed.decisions])
        now = {decision.job_id: decision for decision in today.decisions}
        for then in reviewed.decisions:
            moved.extend(_differences(then, now.get(then.job_id)))
    if moved:
        raise StalePlanError(
            "the plan is stale:" + "".join(f"\n  - {line}" for line in moved),
            hint="make a new one: tradewind plan",
        )


def apply(installation: Installation, reviewed: PlanView, *, caller: Caller, accept_code: bool = False) -> Accepted:
    """Submit the plan's new jobs as `caller`, with their current code, and request its placements.

    `accept_code` is as for `submit`. Raises StalePlanError, InfeasibleError, UsageError, StoreError.
    """
    check(installation, reviewed)
    for job in reviewed.new_jobs:
        make_checkpoint_folder(job)
    led = control_plane(
        installation
    ).running  # first, because nothing that can fail may follow the acceptance of the plan
    with uploaded(installation, reviewed.new_jobs, accepted=accept_code) as jobs, installation.store.write() as tx:
        add_jobs(installation, tx, jobs, reviewed.plan, caller=caller)
        tx.add_command("apply", None, {"plan_id": reviewed.id}, caller.actor)
    count = sum(decision.action in ("place", "move") for decision in reviewed.decisions)
    return Accepted(
        command="apply",
        job_ids=tuple(decision.job_id for decision in reviewed.decisions),
        message=f"plan {reviewed.id}: {count} to start or move, {len(reviewed.decisions) - count} unchanged",
        control_plane=led,
    )


def _gone(installation: Installation, reviewed: PlanView) -> list[str]:
    """Jobs that ended or were submitted since the plan."""
    new = {job.id for job in reviewed.new_jobs}
    with installation.store.read() as tx:
        states = {job.id: job.state for job in tx.outlines_of({each.job_id for each in reviewed.decisions})}
    moved = []
    for decision in reviewed.decisions:
        state = states.get(decision.job_id)
        if decision.job_id in new and state is not None:
            moved.append(f"{decision.name} was already submitted ({decision.job_id}, {state})")
        elif decision.job_id not in new and (state is None or state in TERMINAL):
            moved.append(f"{decision.name} is {state or 'not in this store'}")
    return moved


def _differences(then: Decision, now: Decision | None) -> list[str]:
    if now is None:
        return [f"{then.name} is no longer waiting or running"]
    if now.action != then.action or now.offer_id != then.offer_id:
        line = f"{then.name}: planned: {_words(then)}, now: {_words(now)}"
        return [line + "".join(f"; {change}" for change in _prices(then, now))]
    return [f"{then.name}: {change}" for change in _prices(then, now) if _more_expensive(then, now)]


def _words(decision: Decision) -> str:
    on = ACTION_WORDS_ON.get(decision.action)
    return f"{on} {decision.offer_id}" if on and decision.offer_id is not None else ACTION_WORDS[decision.action]


def _price(decision: Decision, offer_id: str | None) -> int | None:
    found = [choice for choice in decision.choices if choice.offer_id == offer_id]
    return found[0].nano_usd_per_hour if found else None


def _more_expensive(then: Decision, now: Decision) -> bool:
    old, new = _price(then, then.offer_id), _price(now, then.offer_id)
    return old is not None and new is not None and new > old * (1 + PRICE_TOLERANCE)


def _prices(then: Decision, now: Decision) -> list[str]:
    """The price changes of the two choices."""
    lines = []
    for offer_id in dict.fromkeys((then.offer_id, now.offer_id)):
        old, new = _price(then, offer_id), _price(now, offer_id)
        if old is not None and new is not None and old != new:
            word = "rose" if new > old else "fell"
            lines.append(f"{offer_id} {word} from {format_usd(old, 4)}/h to {format_usd(new, 4)}/h")
        elif old is not None and new is None:
            lines.append(f"{offer_id} is no longer offered")
    return lines
