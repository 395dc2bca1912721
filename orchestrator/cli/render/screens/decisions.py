"""Everything a plan says about one job: each offer with the reason against it, the parts of the cost, the
alternatives."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    amount,
    between,
    blocks,
    capacity,
    clean,
    finish_range,
    instant,
    machine,
    money,
    number,
    rate,
    ratio,
    span,
    ways_to_know,
    where,
)
from orchestrator.model import ACTION_WORDS, ACTION_WORDS_ON
from orchestrator.services.views import Choice, Decision

SHOWN = {"choose": 1, "stay": 1, "await": 1, "next": 3, "no": 3, "baseline": 1}
ROLES = {"baseline": "on-demand", "await": "wait for"}
MOST_AS_GOOD = 4


def saving(view: Decision) -> str:
    """`$1.20 less than on-demand`: the saving, and what it is compared with."""
    instead = {"move": "staying", "wait": "starting now"}.get(view.action, "on-demand")
    if view.probe is not None and view.probe.offer_id is not None and view.probe.offer_id == view.offer_id:
        instead = "without the probe"
    return f"{amount(view.saving_nano_usd)} less than {instead}"


def headline(view: Decision, screen: Screen) -> str:
    """`gpt: start on 1xV100 spot in fake/beta-1 at $1.0200/h`: the decision for a job, as all screens write it."""
    rest = ACTION_WORDS[view.action]
    if view.planned is not None and view.action in ACTION_WORDS_ON:
        rest = f"{ACTION_WORDS_ON[view.action]} {offered(view.planned, view.nodes)}"
    return screen(f"{clean(view.name)}: {clean(rest)}", "bold")


def offered(choice: Choice, nodes: int) -> str:
    """`1xV100 spot in fake/beta-1 at $1.0200/h`; of several machines, `2 x 1xV100 spot in fake/beta-1 at $2.0400/h`."""
    kind = f"{machine(choice.offer_id)} ({capacity(choice.offer_id)})" if choice.gpu == "cpu" else choice.gpu
    spot = "" if choice.gpu == "cpu" else f" {capacity(choice.offer_id)}"
    several = f"{nodes} x " if nodes > 1 else ""
    return f"{several}{kind}{spot} in {where(choice.offer_id)} at {rate(choice.nano_usd_per_hour)}"


def decision(view: Decision, screen: Screen) -> str:
    """One job's placement with its figures and reasons."""
    wants = [f"objective {view.objective}"]
    if view.deadline_at_ms is not None:
        wants.append(f"deadline {instant(view.deadline_at_ms)}")
    if view.budget_nano_usd is not None:
        wants.append(f"budget {money(view.budget_nano_usd)}")
    expected = []
    if view.cost_nano_usd is not None:
        expected.append(f"{amount(view.cost_nano_usd)} expected{_cost_interval(view)}")
    if view.finish_at_ms is not None:
        expected.append(f"done {instant(view.finish_at_ms)}{_finish_interval(view)}")
    if view.saving_nano_usd > 0:
        expected.append(saving(view))
    return blocks(
        headline(view, screen),
        f"  {', '.join(wants)}",
        _choices(view, screen),
        _named("offer", view.offer_id or ""),
        _named("as good", _as_good(view)),
        _named("why", clean(view.reason)),
        _named("cost", ", ".join(expected)),
        _named("made of", _parts(view)),
        _named("standby", _standby(view)),
        _named("probe", _probe(view)),
        _named("speed", _speed(view, screen)),
        _named("risk", _risk(view)),
        _named("changes", _changes(view)),
        _named("left out", ", ".join(f"{each.topic} ({each.count})" for each in view.rejected[:6])),
        _comparison(view, screen),
    )


def _named(name: str, text: str) -> str:
    return f"{name:<8} {text}" if text else ""


def _choices(view: Decision, screen: Screen) -> str:
    left = dict(SHOWN)
    shown = []
    refused = [choice for choice in view.choices if choice.role == "no"]
    refused.sort(key=lambda choice: choice.offer_id not in view.reason)  # show the offer that the reason names first
    in_order = iter(refused)
    for each in view.choices:
        choice = next(in_order) if each.role == "no" else each
        if left[choice.role] > 0:
            left[choice.role] -= 1
            shown.append(choice)
    hidden = view.count - sum(choice.role != "baseline" for choice in shown)
    rank = f"tradewind offers --for {screen.file}" if screen.file else "tradewind offers"
    more = screen(f"  {hidden} more offers: {rank}", "dim") if hidden > 0 else ""
    measured = view.evidence != "none"
    columns = (
        Column("  "),
        Column("where"),
        Column("machine", 5),
        Column("gpu"),
        Column("type"),
        numbers("price"),
        numbers("age", 6),
        *((numbers("time", 4), numbers("cost")) if measured else (numbers("speed", 1),)),
        Column("offer", wide=True),
        Column("reason", text=True),
    )
    rows = [_row(choice, measured=measured) for choice in shown]
    return blocks(table(columns, rows, screen) if rows else "", more)


def _row(choice: Choice, *, measured: bool) -> tuple[str, ...]:
    known = (span(choice.duration_s), amount(choice.cost_nano_usd)) if measured else (ratio(choice.relative_speed),)
    return (
        f"  {ROLES.get(choice.role, choice.role)}",
        where(choice.offer_id),
        machine(choice.offer_id),
        choice.gpu,
        capacity(choice.offer_id),
        rate(choice.nano_usd_per_hour),
        span(choice.price_age_s),
        *known,
        choice.offer_id,
        choice.reason,
    )


def _cost_interval(view: Decision) -> str:
    choice = view.planned
    if choice is None or choice.cost_low_nano_usd is None:
        return ""
    return _percentiles(between(amount(choice.cost_low_nano_usd), amount(choice.cost_high_nano_usd)))


def _finish_interval(view: Decision) -> str:
    interval = "" if view.planned is None else finish_interval(view, view.planned)
    return _percentiles(f"in {interval}") if interval else ""


def _percentiles(interval: str) -> str:
    return f" ({interval}, p5-p95)" if interval else ""


def finish_interval(view: Decision, choice: Choice) -> str:
    """The 5th and 95th percentile of the time to finish on a planned choice; "" if they are not known or read alike."""
    if choice.duration_low_s is None or choice.duration_high_s is None:
        return ""
    deadline_ms, finish_ms, takes_s = view.deadline_at_ms, view.finish_at_ms, choice.duration_s
    left_s = None
    if deadline_ms is not None and finish_ms is not None and takes_s is not None:
        left_s = (deadline_ms - finish_ms) / 1000 + takes_s
    return finish_range(choice.duration_low_s, choice.duration_high_s, left_s)


def _as_good(view: Decision) -> str:
    left = len(view.also) - MOST_AS_GOOD
    return ", ".join(view.also[:MOST_AS_GOOD]) + (f" and {left} more" if left > 0 else "")


def _parts(view: Decision) -> str:
    if view.parts is None:
        return ""
    parts = (
        ("training", view.parts.compute_nano_usd),
        ("checkpoints", view.parts.checkpoint_nano_usd),
        ("preemptions", view.parts.preemption_nano_usd),
        ("start-up", view.parts.start_nano_usd),
        ("egress and requests", view.parts.egress_nano_usd),
        ("storage and disk", view.parts.storage_nano_usd),
        ("minimum billing", view.parts.minimum_nano_usd),
    )
    return " + ".join(f"{name} {amount(cost)}" for name, cost in parts if cost)


def _standby(view: Decision) -> str:
    if view.standby is None:
        return ""
    kept = f"{amount(view.standby.cost_nano_usd)} more for a warm standby on {view.standby.offer_id}"
    return f"{kept} ({rate(view.standby.nano_usd_per_hour)})"


def _probe(view: Decision) -> str:
    if view.probe is None:
        return ""
    if view.probe.offer_id is None:
        return f"none: {view.probe.reason}"
    figures = f"costs {amount(view.probe.cost_nano_usd)}, expected to save {amount(view.probe.saving_nano_usd)} more"
    when = (
        "then decides again"
        if view.probe.offer_id == view.offer_id
        else "after the job was measured on its first offer"
    )
    return f"{view.probe.minutes:g} min on {view.probe.offer_id}, {when} ({figures})"


def _speed(view: Decision, screen: Screen) -> str:
    if view.evidence == "none" and view.action in ("place", "stay", "move"):
        return f"{view.throughput_source}: cost and finish time are unknown; {ways_to_know(screen.file)}"
    if view.steps_per_s is not None:
        return f"{number(view.steps_per_s)} steps/s ({view.throughput_source})"
    return ""


def _risk(view: Decision) -> str:
    if not view.expected_losses:
        return ""
    return f"{number(view.expected_losses, 2)} preemptions expected ({view.hazard_source})"


def _changes(view: Decision) -> str:
    turns = []
    if view.would_move_below_nano_usd_per_hour is not None:
        verb = "is chosen instead" if view.action == "place" else "becomes worth a move"
        turns.append(f"the runner-up {verb} below {rate(view.would_move_below_nano_usd_per_hour)}")
    if view.kept_up_to_nano_usd_per_hour is not None:
        turns.append(f"this offer is best up to {rate(view.kept_up_to_nano_usd_per_hour)}")
    return "; ".join(turns)


def _comparison(view: Decision, screen: Screen) -> str:
    """The Pareto front as a small plot beside its figures, and the offer that each objective would choose."""
    if not view.picks:
        return ""
    best: dict[str | None, list[str]] = {}
    for pick in view.picks:
        best.setdefault(pick.offer_id, []).append(pick.objective)
    listed = {point.offer_id for point in view.front}
    points = [*view.front, *{p.offer_id: p for p in view.picks if p.offer_id not in listed and p.offer_id}.values()]
    longest = max((point.duration_s or 0.0 for point in points), default=0.0) or 1.0
    highest = max((point.cost_nano_usd or 0 for point in points), default=0) or 1
    rows = [
        (
            f"  {where(point.offer_id or '')}",
            machine(point.offer_id or ""),
            capacity(point.offer_id or ""),
            amount(point.cost_nano_usd),
            _bar((point.cost_nano_usd or 0) / highest),
            span(point.duration_s),
            _bar((point.duration_s or 0.0) / longest),
            point.offer_id or "",
            ", ".join(best.get(point.offer_id, [])),
        )
        for point in points
    ]
    nothing = ", ".join(best.get(None, []))
    columns = (
        Column("  cheaper or faster"),
        Column("machine", 4),
        Column("type", 1),
        numbers("cost"),
        Column("", 2),
        numbers("time"),
        Column("", 3),
        Column("offer", wide=True),
        Column("chosen by", text=True),
    )
    return blocks(
        " ",
        table(columns, rows, screen) if rows else "",
        f"  no offer: {nothing}" if nothing else "",
        _not_counted(view) if rows else "",
    )


def _not_counted(view: Decision) -> str:
    """Why the figures of an offer may differ from the figures above."""
    if view.deadline_at_ms is None:
        return ""
    others = "" if view.planned is None else " of the other offers"
    return f"  the costs and times{others} in this table ignore its deadline"


def _bar(share: float) -> str:
    return "#" * max(1, round(share * 10))
