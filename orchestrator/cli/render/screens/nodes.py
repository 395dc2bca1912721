"""The machines that are up as text."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import (
    Screen,
    amount,
    blocks,
    capacity,
    clean,
    instant,
    machine,
    moment,
    note_simulated,
    rate,
    span,
    where,
)
from orchestrator.services.nodes.views import Heard, Node, NodeList, UnmanagedNode

NODES = (
    Column("job"),
    Column("state", state=True),
    Column("where"),
    Column("machine", 4),
    Column("type", 3),
    Column("instance", 5),
    numbers("up"),
    numbers("price"),
    numbers("cost"),
    Column("billed since", wide=True),
    Column("run", wide=True),
    Column("last heard", text=True),
)
FINE_S = 10.0  # below it, tenths of a second count


def nodes(view: NodeList, screen: Screen) -> str:
    """A row for each machine, then notes that do not fit into the table."""
    return blocks(
        table(NODES, [_row(node, view) for node in view.nodes], screen) if view.nodes else _none(view),
        screen(_total(view), "dim") if view.nodes else "",
        *(_unmanaged(each) for each in view.unmanaged),
        *(
            f"{clean(each.provider)} did not answer, so only data from the store is shown: {clean(each.error)}"
            for each in view.no_answer
        ),
        screen(_clocks(view), "dim") if view.nodes else "",
        screen(note_simulated(view.simulated), "dim"),
    )


def _row(node: Node, view: NodeList) -> tuple[str, ...]:
    return (
        "-" if node.job is None else node.job + _number(node),
        node.state,
        where(node.offer_id),
        machine(node.offer_id),
        capacity(node.offer_id),
        node.instance_id,
        "-" if node.since_ms is None else span(max(0, view.at_ms - node.since_ms) / 1000),
        rate(node.nano_usd_per_hour),
        amount(node.cost_nano_usd),
        instant(node.since_ms),
        node.run_id,
        "; ".join(_words(node, view.silent_after_wall_s)),
    )


def _number(node: Node) -> str:
    """The number of the machine within its job, if the job has several."""
    return "" if node.nodes == 1 else f" (1 of {node.nodes})" if node.rank is None else f" (node {node.rank})"


def _words(node: Node, silent_after_s: float) -> Iterator[str]:
    """What the machine reported, and what its provider says about it."""
    if node.unreadable:
        yield f"cannot be read: {node.unreadable}"
    elif node.heard is not None:
        yield _heard(node.heard, silent_after_s)
    else:
        yield "no report is kept" if node.state == "ending" else "never"
    if node.state == "unknown":
        yield f"{node.run_id} cannot be read: tradewind store check"
    if node.notice_at_ms is not None:
        yield f"its provider will take it away at {moment(node.notice_at_ms)}"
    if node.listed is False:
        yield "its provider does not list it"


def _heard(heard: Heard, silent_after_s: float) -> str:
    age = _age(heard.age_wall_s)
    said = _said(heard)
    if heard.age_wall_s > silent_after_s:
        return f"silent for {age}: {said}"
    if heard.said_age_wall_s is not None and heard.said_age_wall_s > silent_after_s:
        return f"{age} ago, its trainer silent for {_age(heard.said_age_wall_s)}: {said}"
    return f"{age} ago: {said}"


def _said(heard: Heard) -> str:
    if not heard.valid:
        return "the report is not valid"
    if heard.said is None:
        return "nothing from this run yet"
    if heard.said == "malformed":
        return "its trainer's report is not valid"
    return heard.said.replace("_", " ") + (f", step {heard.step}" if heard.step else "")


def _age(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < FINE_S else span(seconds)


def _total(view: NodeList) -> str:
    count = len(view.nodes)
    hourly = sum(node.nano_usd_per_hour or 0 for node in view.nodes)
    cost = sum(node.cost_nano_usd or 0 for node in view.nodes)
    return f"{count} {'machine' if count == 1 else 'machines'}, {rate(hourly)}, {amount(cost)} so far"


def _none(view: NodeList) -> str:
    known = " that the store knows" if view.no_answer else ""
    return f"no machines{known} are up" if view.job is None else f"no machine{known} is up for {clean(view.job)}"


def _unmanaged(node: UnmanagedNode) -> str:
    since = "" if node.since_ms is None else f", billed since {instant(node.since_ms)}"
    price = "" if node.nano_usd_per_hour is None else f", {rate(node.nano_usd_per_hour)}"
    what = f"{node.instance_id} ({node.offer_id}{price}{since})"
    return clean(
        f"not rented by this store: {what}; if no other copy of the store uses it: tradewind reap {node.instance_id}"
    )


def _clocks(view: NodeList) -> str:
    if view.clock_factor == 1:
        return ""
    return f"1 real second is {view.clock_factor:g} market seconds; 'up' is in market time, 'last heard' in real time"
