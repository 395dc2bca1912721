"""Plans and explanations as text: what was chosen, what came next, the one reason against each other offer."""

from __future__ import annotations

from orchestrator.cli.render.jobs import events
from orchestrator.cli.render.text import (
    HOW_TO_KNOW,
    Paint,
    blocks,
    clean,
    instant,
    money,
    note_simulated,
    number,
    rate,
    ratio,
    span,
    table,
)
from orchestrator.services.views import Choice, Decision, EventList, Explanation, PlanView

SHOWN = {"choose": 1, "stay": 1, "next": 3, "no": 3, "baseline": 1}
WORDS = {"baseline": "on-demand"}


def plan(view: PlanView, paint: Paint) -> str:
    age = "prices never asked" if view.price_age_s is None else f"prices {span(view.price_age_s)} old"
    head = f"Plan {view.id}   market as of {instant(view.at_ms)} ({age})"
    if view.anywhere:
        head = (
            "Plan over prices as collected, else the catalogue's list prices "
            f"(up to {span(view.price_age_s)} old; old prices count as higher), not over what is enabled here"
        )
    if not view.decisions:
        return blocks(head, "no jobs to plan")
    parts = [text for decided in view.decisions for text in ("", decision(decided, paint))]
    foot = note_simulated(view.simulated)
    if view.anywhere:
        clouds = ", ".join(view.not_enabled)
        foot = f"{clouds}: not enabled; enable it in tradewind.toml to run there" if clouds else ""
    return blocks(paint(head, "bold"), *(part or " " for part in parts), paint(foot, "dim"))


def decision(view: Decision, paint: Paint) -> str:
    """One job's placement."""
    wants = [f"objective {view.objective}"]
    if view.deadline_at_ms is not None:
        wants.append(f"deadline {instant(view.deadline_at_ms)}")
    if view.budget_nano_usd is not None:
        wants.append(f"budget {money(view.budget_nano_usd)}")
    title = f"{clean(view.name)}: {view.action}   {', '.join(wants)}"
    expected = []
    if view.cost_nano_usd is not None:
        expected.append(f"{money(view.cost_nano_usd, 4)} expected{_interval(view)}")
    if view.finish_at_ms is not None:
        expected.append(f"done {instant(view.finish_at_ms)}{_finish_interval(view)}")
    if view.saving_nano_usd > 0:
        instead = "staying" if view.action == "move" else "on-demand"
        expected.append(f"{money(view.saving_nano_usd, 4)} less than {instead}")
    standby = ""
    if view.standby is not None:
        kept = f"{money(view.standby.cost_nano_usd, 4)} more for a warm one on {view.standby.offer_id}"
        standby = f"standby  {kept} ({rate(view.standby.nano_usd_per_hour)})"
    speed = ""
    if view.evidence == "none" and view.action in ("place", "stay", "move"):
        speed = f"speed  {view.throughput_source}: its cost and finish time are unknown; {HOW_TO_KNOW}"
    elif view.steps_per_s is not None:
        speed = f"speed  {number(view.steps_per_s)} steps/s ({view.throughput_source})"
    turns = []
    if view.would_move_below_nano_usd_per_hour is not None:
        verb = "be taken instead" if view.action == "place" else "be moved to"
        turns.append(f"the next best would {verb} below {rate(view.would_move_below_nano_usd_per_hour)}")
    if view.kept_up_to_nano_usd_per_hour is not None:
        turns.append(f"this one is best up to {rate(view.kept_up_to_nano_usd_per_hour)}")
    return blocks(
        paint(title, "bold"),
        _choices(view, paint),
        f"why    {clean(view.reason)}",
        f"cost   {', '.join(expected)}" if expected else "",
        _probe(view),
        standby,
        _parts(view),
        speed,
        _risk(view),
        f"turn   {'; '.join(turns)}" if turns else "",
        _ruled_out(view),
        _comparison(view, paint),
    )


def _probe(view: Decision) -> str:
    if view.probe is None:
        return ""
    if view.probe.offer_id is None:
        return f"probe  none: {view.probe.reason}"
    figures = (
        f"costs {money(view.probe.cost_nano_usd, 4)}, expected to save {money(view.probe.saving_nano_usd, 4)} more"
    )
    when = "then decided again" if view.probe.offer_id == view.offer_id else "once it was measured where it begins"
    return f"probe  {view.probe.minutes:g} min on {view.probe.offer_id}, {when} ({figures})"


def _parts(view: Decision) -> str:
    if view.parts is None:
        return ""
    parts = (
        ("training", view.parts.compute_nano_usd),
        ("checkpoints", view.parts.checkpoint_nano_usd),
        ("preemptions", view.parts.preemption_nano_usd),
        ("start", view.parts.start_nano_usd),
        ("egress and requests", view.parts.egress_nano_usd),
        ("storage and disk", view.parts.storage_nano_usd),
        ("minimum billing", view.parts.minimum_nano_usd),
    )
    return "of it  " + " + ".join(f"{name} {money(amount, 4)}" for name, amount in parts if amount)


def _risk(view: Decision) -> str:
    if not view.expected_losses:
        return ""
    return f"risk   {number(view.expected_losses, 2)} preemption(s) expected ({view.hazard_source})"


def _ruled_out(view: Decision) -> str:
    if not view.rejected:
        return ""
    return "out    " + ", ".join(f"{each.count} by {each.topic}" for each in view.rejected[:6])


def _comparison(view: Decision, paint: Paint) -> str:
    """The Pareto front as a small plot beside its figures, and what each objective would take."""
    if not view.picks:
        return ""
    best: dict[str | None, list[str]] = {}
    for pick in view.picks:
        best.setdefault(pick.offer_id, []).append(pick.objective)
    listed = {point.offer_id for point in view.front}
    points = [*view.front, *{p.offer_id: p for p in view.picks if p.offer_id not in listed and p.offer_id}.values()]
    longest = max((point.duration_s or 0.0 for point in points), default=0.0) or 1.0
    dearest = max((point.cost_nano_usd or 0 for point in points), default=0) or 1
    rows = [
        (
            f"  {point.offer_id}",
            money(point.cost_nano_usd, 4),
            _bar((point.cost_nano_usd or 0) / dearest),
            span(point.duration_s),
            _bar((point.duration_s or 0.0) / longest),
            ", ".join(best.get(point.offer_id, [])),
        )
        for point in points
    ]
    nothing = ", ".join(best.get(None, []))
    return blocks(
        " ",
        table(("  cheaper or faster", "cost", "", "time", "", "picked by"), rows, paint, right=(1, 3)),
        f"  no offer: {nothing}" if nothing else "",
    )


def _bar(share: float) -> str:
    return "#" * max(1, round(share * 10))


def _choices(view: Decision, paint: Paint) -> str:
    left = dict(SHOWN)
    rows = []
    for choice in view.choices:
        if left[choice.role] > 0:
            left[choice.role] -= 1
            rows.append(_row(choice, measured=view.evidence != "none"))
    hidden = view.count - sum(choice[0].strip() != "on-demand" for choice in rows)
    more = paint(f"  ... {hidden} more offer(s): tradewind offers --for FILE ranks them", "dim") if hidden > 0 else ""
    head: tuple[str, ...] = ("", "offer", "gpu", "price", "age", "time", "cost", "")
    if view.evidence == "none":
        head = ("", "offer", "gpu", "price", "age", "speed", "")
    return blocks(table(head, rows, paint, right=range(3, len(head) - 1)) if rows else "", more)


def _row(choice: Choice, *, measured: bool) -> tuple[str, ...]:
    known = (span(choice.duration_s), money(choice.cost_nano_usd, 4)) if measured else (ratio(choice.relative_speed),)
    return (
        f"  {WORDS.get(choice.role, choice.role)}",
        choice.offer_id,
        choice.gpu,
        rate(choice.nano_usd_per_hour),
        span(choice.price_age_s),
        *known,
        choice.reason,
    )


def _finish_interval(view: Decision) -> str:
    for choice in view.choices:
        if choice.offer_id == view.offer_id and choice.duration_low_s is not None:
            return f" (in {span(choice.duration_low_s)} to {span(choice.duration_high_s)}, p5-p95)"
    return ""


def _interval(view: Decision) -> str:
    for choice in view.choices:
        if choice.offer_id == view.offer_id and choice.cost_low_nano_usd is not None:
            return f" ({money(choice.cost_low_nano_usd, 4)} to {money(choice.cost_high_nano_usd, 4)}, p5-p95)"
    return ""


def explanation(view: Explanation, paint: Paint) -> str:
    decided = ""
    if view.plan_id is not None:
        decided = f"\ndecided {instant(view.planned_at_ms)} by {view.plan_id} (prices and ages as of then)"
    steps = ""
    if view.steps:
        rows = [(step.step, instant(step.at_ms), span(step.duration_s)) for step in view.steps]
        steps = "\n" + table(("step", "from", "took"), rows, paint, right=(2,))
    history = "\n" + events(EventList(view.history), paint) if view.history else ""
    return blocks(
        paint(clean(view.headline), "bold"),
        decided,
        *(decision(each, paint) for each in view.decisions),
        steps,
        history,
        paint(note_simulated(view.simulated), "dim"),
    )
