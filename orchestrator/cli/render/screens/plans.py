"""Plans as text: the first screen of each job (where, cost, finish, runner-up, what would change the choice), and
everything else with `--why`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from orchestrator.cli.render.screens.decisions import decision, finish_interval, headline, offered, saving
from orchestrator.cli.render.screens.jobs import event_lines
from orchestrator.cli.render.screens.shortfalls import needs_accepted_risk, shortfalls
from orchestrator.cli.render.screens.trace import trace
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    NO_PROVIDER,
    Screen,
    amount,
    between,
    blocks,
    capacity,
    clean,
    fitted,
    instant,
    lacks_secrets,
    likely,
    money,
    note_simulated,
    rate,
    rows,
    span,
    ways_to_know,
    where,
)
from orchestrator.model import ACTION_WORDS
from orchestrator.services.rentable import CouldEnable, Enabling, NotRentable, QuotaWorth
from orchestrator.services.views import Choice, Decision, Explanation, PlanView
from providers.money import places_of, rounded

LABELLED = (Column(""), Column("", text=True))
FIRST_SCREEN = 12  # rows of a terminal
NAMED = 3  # jobs
LEAST_NEEDED = ("not rentable", "saving unknown", "not enabled", "made of", "could enable", "missing", "changes if")
"""Lines that are left out, in this order, if a screen is too long."""


def plan(view: PlanView, screen: Screen) -> str:
    """The first screen of a plan; with `--why` all of it, with `--policy-trace` how it was decided."""
    if not view.decisions:
        return blocks(_head(view, screen), "no jobs to plan")
    traced = any(each.trace is not None for each in view.decisions)
    if traced or screen.why:
        ways = [way for way, wanted in ((trace, traced), (decision, screen.why)) if wanted]
        shown = [text for each in view.decisions for way in ways for text in (" ", way(each, screen))]
        closed = _not_rentable(view.not_rentable) if screen.why else ""
        return blocks(_head(view, screen), *shown, closed, _foot(view, screen))
    if len(view.decisions) == 1:
        return _first_screen(view, screen)
    return blocks(_together(view, screen), _head(view, screen), _foot(view, screen))


def _first_screen(view: PlanView, screen: Screen) -> str:
    """A plan for one job. Commands are never cut, because users paste them; so if the path of the job file is long, the
    lines in LEAST_NEEDED appear only with `--why`."""
    for count in range(len(LEAST_NEEDED) + 1):
        less = LEAST_NEEDED[:count]
        text = blocks(_one_job(view.decisions[0], screen, less), _head(view, screen), _foot(view, screen, less))
        if rows(fitted(text, screen.limit), screen.limit) <= FIRST_SCREEN:
            break
    return text


def _head(view: PlanView, screen: Screen) -> str:
    if view.anywhere:
        age = "" if view.price_age_s is None else f" up to {span(view.price_age_s)} old"
        text = f"collected and list prices{age}; old prices are raised for their age"
    else:
        age = "no prices yet" if view.price_age_s is None else f"prices {span(view.price_age_s)} old"
        simulated = ", simulated: no real money" if view.simulated and not screen.why else ""
        text = f"{view.id}, {age}{simulated}"
    return screen(text, "bold" if screen.why else "dim")


def _foot(view: PlanView, screen: Screen, less: Collection[str] = ()) -> str:
    from orchestrator.services.jobs.feasible import risk

    to_enable = [] if "not enabled" in less else [each for each in view.not_enabled if each not in view.no_provider]
    clouds, unrentable = ", ".join(to_enable), ", ".join(view.no_provider)
    closed = ", ".join(each.place for each in view.not_rentable)
    none_of = ", ".join(view.no_offers)
    unknown = f"the saving from enabling a cloud is unknown: {view.saving_unknown}"
    lines = [
        f"all figures and reasons: {screen.command} --why" if screen.command and not screen.why else "",
        needs_accepted_risk(risk(view)),
        *map(clean, view.cautions),
        lacks_secrets(view.missing_secrets),
        _outdated(view.outdated),
        *shortfalls(view.short_projects, view.full_limits),
        f"{none_of}: enabled, but without offers; to find out why: tradewind doctor" if none_of else "",
        f"not enabled here: {clouds}; to run there, enable it in tradewind.toml" if view.anywhere and clouds else "",
        f"Tradewind cannot rent at {unrentable}: {NO_PROVIDER}" if unrentable else "",
        "" if view.could_enable is None or "could enable" in less else _could_enable(view.could_enable, screen),
        unknown if view.saving_unknown and "saving unknown" not in less else _savings(view),
        *map(_quota, view.quotas),
        f"not rentable: {closed}; reasons: --why" if closed and not screen.why and "not rentable" not in less else "",
        "" if view.anywhere or not screen.why else note_simulated(view.simulated),
    ]
    return screen(blocks(*lines), "dim") if any(lines) else ""


def _not_rentable(closed: Sequence[NotRentable]) -> str:
    """Configured places that cannot be rented, with reasons and remedies."""
    lines = [f"  {each.place}: {clean(each.reason)}; {clean(each.remedy)}" for each in closed]
    return "\n".join(["", "configured but not rentable:", *lines]) if lines else ""


def _outdated(clouds: Sequence[str]) -> str:
    from orchestrator.prices.sources import collecting

    names = " and ".join(clouds)
    return f"prices of {names} are too old to plan with; collect new ones: {collecting(clouds)}" if clouds else ""


def _could_enable(found: CouldEnable, screen: Screen) -> str:
    """Where the job could run if the user enables a cloud, as the plan's choice cannot be rented."""
    where = f"cheapest to enable: {', '.join(found.clouds)} ({', '.join(found.regions)})"
    if found.cost_nano_usd is None:
        return where
    age = f", prices up to {span(found.price_age_s)} old" if screen.why and found.price_age_s is not None else ""
    return f"{where}, about {amount(found.cost_nano_usd)} (estimate{age})"


def _savings(view: PlanView) -> str:
    """The savings from enabling clouds, or more of their regions, largest first."""
    worth = sorted((each for each in view.enabling if each.saving_nano_usd > 0), key=lambda each: -each.saving_nano_usd)
    savings = []
    if worth:
        best, age = worth[0], max(each.price_age_s or 0.0 for each in worth)
        share = f"{100 * best.saving_nano_usd / best.of_nano_usd:.0f}%, estimate, prices up to {span(age)} old"
        rest = "".join(f", {_change(each)} {amount(each.saving_nano_usd)}" for each in worth[1:])
        saved, of = amount(best.saving_nano_usd), amount(best.of_nano_usd)
        savings.append(f"{_change(best)} would save about {saved} of {of} ({share}){rest}")
    if others := [each.cloud for each in view.enabling if each.saving_nano_usd <= 0 and not each.enabled]:
        savings.append(f"{', '.join(others)}: nothing cheaper")
    return "; ".join(savings)


def _quota(worth: QuotaWorth) -> str:
    """The value of a larger quota."""
    unit = worth.unit.replace("vcpus", "vCPUs").replace("gpus", "GPUs")
    others = f" and {len(worth.starts) - NAMED} more" if len(worth.starts) > NAMED else ""
    starts = f"let {clean(', '.join(worth.starts[:NAMED]))}{others} start now" if worth.starts else ""
    saves = f"save about {amount(worth.saving_nano_usd)} (estimate)" if worth.saving_nano_usd > 0 else ""
    taken = f" and {worth.taken} planned or on their way" if worth.taken else ""
    would = " and ".join(each for each in (starts, saves) if each)
    whose = f"your quota {clean(worth.name)} at {worth.cloud}, {clean(worth.scope)}"
    if worth.owned:
        whose, unit = f"your machines on {clean(worth.scope)}", "machine" if worth.limit == 1 else "machines"
    return f"{whose} ({worth.limit} {unit}, {worth.used} in use{taken}): {worth.more} more would {would}"


def _change(possible: Enabling) -> str:
    """`enabling gcp (us-central1)`, `adding eu-west-1 to providers.aws.regions`."""
    regions = ", ".join(possible.regions)
    if possible.enabled:
        return f"adding {regions} to providers.{possible.cloud}.regions"
    return f"enabling {possible.cloud} ({regions})"


def _one_job(view: Decision, screen: Screen, less: Collection[str]) -> str:
    """The lines of one job, except the lines named in `less`."""
    chosen = view.planned
    lines = [
        ("why", "why", clean(view.reason)),
        ("cost", "cost", _cost(view, chosen)),
        ("made of", "", _made_of(view, chosen)),
        ("finish", "finish", _finish(view, chosen)),
        ("runner-up", "runner-up", _runner_up(view, chosen)),
        ("changes if", "changes if", _changes(view)),
        ("missing", "missing", _missing(view, screen)),
    ]
    shown = [(f"  {label}", text) for name, label, text in lines if text and name not in less]
    return blocks(headline(view, screen), table(LABELLED, shown, screen))


def _cost(view: Decision, chosen: Choice | None) -> str:
    if view.cost_nano_usd is None:
        return "unknown until the speed is known" if view.evidence == "none" and chosen is not None else ""
    text = amount(view.cost_nano_usd)
    if chosen is not None and chosen.cost_low_nano_usd is not None:
        text += likely(between(amount(chosen.cost_low_nano_usd), amount(chosen.cost_high_nano_usd)))
    if view.saving_nano_usd > 0:
        text += f", {saving(view)}"
    return text


def _made_of(view: Decision, chosen: Choice | None) -> str:
    """The parts of the cost, so that the rate per step and the total visibly agree: rounded so that they add up."""
    parts = view.parts
    if parts is None or chosen is None or chosen.nano_usd_per_step is None or view.cost_nano_usd is None:
        return ""
    steps = parts.compute_nano_usd + parts.checkpoint_nano_usd + parts.preemption_nano_usd
    others = (
        ("start-up", parts.start_nano_usd),
        ("egress", parts.egress_nano_usd),
        ("storage", parts.storage_nano_usd),
        ("minimum billing", parts.minimum_nano_usd),
    )
    per_thousand = f"{amount(round(chosen.nano_usd_per_step * 1000))} per 1,000 steps"
    total, steps = rounded(view.cost_nano_usd, view.cost_nano_usd), rounded(steps, view.cost_nano_usd)
    rest = total - steps
    named = " and ".join(name for name, cost in others if cost * 50 >= view.cost_nano_usd) or "other costs"
    places = places_of(total)
    return f"= {money(steps, places)} training ({per_thousand})" + (f" + {money(rest, places)} {named}" if rest else "")


def _finish(view: Decision, chosen: Choice | None) -> str:
    if view.finish_at_ms is None:
        return ""
    text = instant(view.finish_at_ms)
    if chosen is not None and chosen.duration_s is not None:
        text = f"in {span(chosen.duration_s)}{likely(finish_interval(view, chosen))}, {text}"
    return text


def _runner_up(view: Decision, chosen: Choice | None) -> str:
    second = next((each for each in view.choices if each.role == "next"), None)
    if second is None:
        return "none: no other offer meets all requirements and limits" if view.offer_id is not None else ""
    name = offered(second, view.nodes)
    if chosen is not None and second.gpu == chosen.gpu != "cpu":
        name = f"{where(second.offer_id)} {capacity(second.offer_id)} at {rate(second.nano_usd_per_hour)}"
    return f"{name}: {clean(second.reason)}"


def _changes(view: Decision) -> str:
    turns = []
    if view.would_move_below_nano_usd_per_hour is not None:
        turns.append(f"runner-up below {rate(view.would_move_below_nano_usd_per_hour)}")
    if view.kept_up_to_nano_usd_per_hour is not None:
        turns.append(f"this offer above {rate(view.kept_up_to_nano_usd_per_hour)}")
    return ", or ".join(turns)


def _missing(view: Decision, screen: Screen) -> str:
    if view.evidence == "none":
        return ways_to_know(screen.file) if view.offer_id is not None else ""
    if view.evidence == "expected":
        return f"a measured speed: tradewind profile {screen.file or 'FILE'}"
    return "" if view.evidence == "measured" else "a measured speed; the job's first minutes on a machine provide it"


def _together(view: PlanView, screen: Screen) -> str:
    """One line per job, for several jobs."""
    columns = (
        Column("job"),
        Column("plan"),
        Column("where", 4),
        Column("gpu", 5),
        numbers("price", 3),
        numbers("cost"),
        numbers("time"),
        Column("why", 2, text=True),
    )
    return table(columns, [_line(each) for each in view.decisions], screen)


def _line(view: Decision) -> tuple[str, ...]:
    chosen = view.planned
    if chosen is None:
        return (view.name, ACTION_WORDS[view.action], "-", "-", "-", "-", "-", view.reason)
    return (
        view.name,
        ACTION_WORDS[view.action],
        where(chosen.offer_id),
        chosen.gpu,
        rate(chosen.nano_usd_per_hour),
        amount(view.cost_nano_usd),
        span(chosen.duration_s),
        view.reason,
    )


def explanation(view: Explanation, screen: Screen) -> str:
    """The decision that placed a job, and what has happened since."""
    decided = ""
    if view.plan_id is not None:
        decided = f"\ndecided {instant(view.planned_at_ms)} in {view.plan_id} (prices and ages as of then)"
    steps = ""
    if view.steps:
        taken = [(step.step, instant(step.at_ms), span(step.duration_s)) for step in view.steps]
        steps = "\n" + table((Column("step"), Column("from"), numbers("took")), taken, screen)
    history = "\n" + "\n".join(event_lines(view.history, screen)) if view.history else ""
    return blocks(
        screen(clean(view.headline), "bold"),
        decided,
        *(decision(each, screen) for each in view.decisions),
        _not_rentable(view.not_rentable) if view.decisions else "",
        steps,
        history,
        screen(note_simulated(view.simulated), "dim"),
    )
