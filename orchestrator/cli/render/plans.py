"""Plans and explanations as text: what was chosen, what came next, the one reason against each other offer."""

from __future__ import annotations

from orchestrator.cli.render.jobs import events
from orchestrator.cli.render.text import (
    Paint,
    blocks,
    clean,
    instant,
    money,
    note_simulated,
    number,
    rate,
    span,
    table,
)
from orchestrator.services.views import Choice, Decision, EventList, Explanation, PlanView

SHOWN = {"choose": 1, "stay": 1, "next": 3, "no": 3, "baseline": 1}
WORDS = {"baseline": "on-demand"}


def plan(view: PlanView, paint: Paint) -> str:
    age = "prices never asked" if view.price_age_s is None else f"prices {span(view.price_age_s)} old"
    head = f"Plan {view.id}   market as of {instant(view.at_ms)} ({age})"
    if not view.decisions:
        return blocks(head, "no jobs to plan")
    parts = [text for decided in view.decisions for text in ("", decision(decided, paint))]
    return blocks(paint(head, "bold"), *(part or " " for part in parts), paint(note_simulated(view.simulated), "dim"))


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
        expected.append(f"done {instant(view.finish_at_ms)}")
    if view.saving_nano_usd > 0:
        instead = "staying" if view.action == "move" else "on-demand"
        expected.append(f"{money(view.saving_nano_usd, 4)} less than {instead}")
    spare = ""
    if view.spare is not None:
        kept = f"{money(view.spare.cost_nano_usd, 4)} more for a warm one on {view.spare.offer_id}"
        spare = f"spare  {kept} ({rate(view.spare.nano_usd_per_hour)})"
    speed = ""
    if view.steps_per_s is not None:
        speed = f"speed  {number(view.steps_per_s)} steps/s ({view.throughput_source})"
    threshold = ""
    if view.would_move_below_nano_usd_per_hour is not None:
        threshold = f"would move if the next best fell below {rate(view.would_move_below_nano_usd_per_hour)}"
    return blocks(
        paint(title, "bold"),
        _choices(view, paint),
        f"why    {clean(view.reason)}",
        f"cost   {', '.join(expected)}" if expected else "",
        spare,
        speed,
        threshold,
    )


def _choices(view: Decision, paint: Paint) -> str:
    left = dict(SHOWN)
    rows = []
    for choice in view.choices:
        if left[choice.role] > 0:
            left[choice.role] -= 1
            rows.append(_row(choice))
    hidden = view.count - sum(choice[0].strip() != "on-demand" for choice in rows)
    more = paint(f"  ... {hidden} more offer(s): --output json shows them", "dim") if hidden > 0 else ""
    head = ("", "offer", "gpu", "price", "age", "time", "cost", "")
    return blocks(table(head, rows, paint, right=(3, 4, 5, 6)) if rows else "", more)


def _row(choice: Choice) -> tuple[str, ...]:
    return (
        f"  {WORDS.get(choice.role, choice.role)}",
        choice.offer_id,
        choice.gpu,
        rate(choice.nano_usd_per_hour),
        span(choice.price_age_s),
        span(choice.duration_s),
        money(choice.cost_nano_usd, 4),
        choice.reason,
    )


def _interval(view: Decision) -> str:
    for choice in view.choices:
        if choice.offer_id == view.offer_id and choice.cost_low_nano_usd is not None:
            return f" ({money(choice.cost_low_nano_usd, 4)} to {money(choice.cost_high_nano_usd, 4)}, p10-p90)"
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
