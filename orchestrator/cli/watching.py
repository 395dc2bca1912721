"""What `watch` and `submit --wait` show while jobs run. It only reads the store through the SDK, so it keeps running
while the control plane is stopped."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from orchestrator.cli.invocation import tell
from orchestrator.cli.output import Format, Output
from orchestrator.errors import NotFoundError, TradewindError
from orchestrator.model import TERMINAL, Event
from orchestrator.prices.views import PriceSeries
from orchestrator.services.views import JobView

if TYPE_CHECKING:
    from orchestrator.client import Client

REDRAW_WALL_S = 1.0
PRICES_EVERY = 5  # in refreshes; prices rarely change faster
MOST_JOBS = 100
MOST_PRICES = 6
MOST_EVENTS = 40


@dataclass(frozen=True, slots=True)
class WatchView:
    """The state at one refresh: at most `MOST_JOBS` jobs (`more`: there are others), and the `names` of the jobs in the
    events, by id. `prices` are of the offers in use, from `prices_from_ms` to `prices_to_ms`. `trouble` says why the
    store could not be read; the other fields are then from the previous refresh. `to_go_on` is as in
    ControlPlaneView."""

    kind: ClassVar[str] = "watch"

    at_ms: int
    jobs: tuple[JobView, ...]
    ended: int
    prices: tuple[PriceSeries, ...]
    prices_from_ms: int
    prices_to_ms: int
    events: tuple[Event, ...]
    control_plane: bool
    to_go_on: str
    simulated: bool
    more: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""


NOTHING = WatchView(0, (), 0, (), 0, 0, (), True, "", False)


class Watcher:
    """Refreshes the view of the store; if a refresh fails, the previous view is kept."""

    def __init__(self, client: Client, ref: str | None = None) -> None:
        """Watch one job, or all jobs that have not ended. Raises NotFoundError."""
        self._client = client
        self._ref = None if ref is None else client.jobs.get(ref).id
        self._looks = 0
        self._names: dict[str, str] = {}
        self._last = NOTHING

    def look(self) -> WatchView:
        """The current state."""
        try:
            self._last = self._seen()
        except TradewindError as error:
            self._last = replace(self._last, trouble=str(error).splitlines()[0])
        return self._last

    def _seen(self) -> WatchView:
        client = self._client
        if self._ref is None:
            listed = client.jobs.list(limit=MOST_JOBS)
            at_ms, jobs, ended, more = listed.at_ms, listed.jobs, listed.ended, listed.next_cursor is not None
        else:
            status = client.jobs.status(self._ref)
            at_ms, jobs, ended, more = status.at_ms, (status.job,), 0, False
        events = client.events.list(self._ref, limit=MOST_EVENTS).events
        plane = client.control_plane.status()
        seen = replace(
            self._last,
            at_ms=at_ms,
            jobs=jobs,
            ended=ended,
            events=events,
            control_plane=plane.running,
            to_go_on=plane.to_go_on,
            simulated=any(job.simulated for job in jobs),
            more=more,
            names=self._named(jobs, events),
            trouble="",
        )
        moved = {job.offer_id for job in jobs} != {job.offer_id for job in self._last.jobs}
        if moved or self._looks % PRICES_EVERY == 0:
            seen = self._priced(seen)
        self._looks += 1
        return seen

    def _named(self, jobs: tuple[JobView, ...], events: tuple[Event, ...]) -> dict[str, str]:
        self._names |= {job.id: job.name for job in jobs}
        meant = {event.job_id for event in events if event.job_id is not None}
        self._names |= {job_id: self._client.jobs.get(job_id).name for job_id in meant - self._names.keys()}
        return {job_id: self._names[job_id] for job_id in sorted(meant)}

    def _priced(self, seen: WatchView) -> WatchView:
        found: list[PriceSeries] = []
        for offer_id in sorted({job.offer_id for job in seen.jobs if job.offer_id is not None})[:MOST_PRICES]:
            try:
                history = self._client.prices.history(offer_id, since="24h", limit=1)
            except NotFoundError:  # the provider has not listed it yet
                continue
            found += history.series
            seen = replace(seen, prices_from_ms=history.from_ms, prices_to_ms=history.to_ms)
        return replace(seen, prices=tuple(found))


@contextmanager
def display(out: Output, *, to_stdout: bool) -> Iterator[Callable[[WatchView], None]]:
    """Shows each refresh: redrawn on a terminal, line by line elsewhere; as JSON, a document per change. Everything
    except the result goes to stderr."""
    stream = sys.stdout if to_stdout else sys.stderr
    if out.format is Format.JSON:
        yield _documents(out) if to_stdout else lambda _view: None
    elif stream.isatty() and os.environ.get("TERM") != "dumb":
        with _in_place(out, to_stdout=to_stdout) as show:
            yield show
    else:
        yield _lines(out.data if to_stdout else tell)


def _documents(out: Output) -> Callable[[WatchView], None]:
    last = NOTHING

    def show(view: WatchView) -> None:
        nonlocal last
        same = replace(last, at_ms=view.at_ms, prices_from_ms=view.prices_from_ms, prices_to_ms=view.prices_to_ms)
        if view != same:
            out.show(view, stream=True)
            last = view

    return show


@contextmanager
def _in_place(out: Output, *, to_stdout: bool) -> Iterator[Callable[[WatchView], None]]:
    """Draws on the alternate screen, so that resizing the window does no harm; the last view stays visible
    afterwards."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from orchestrator.cli.invocation import current
    from orchestrator.cli.render import render

    stream = sys.stdout if to_stdout else sys.stderr
    console = Console(file=stream, highlight=False, markup=False)
    shown: list[WatchView] = []

    def drawn(view: WatchView) -> str:
        """The view in characters that the terminal's encoding has."""
        screen = replace(out.screen(stream), width=console.size.width, height=console.size.height)
        encoding = getattr(stream, "encoding", None) or "utf-8"
        return current().here(render(view, screen)).encode(encoding, "replace").decode(encoding)

    def show(view: WatchView) -> None:
        shown[:] = [view]
        live.update(Text.from_ansi(drawn(view), overflow="fold"), refresh=True)

    try:
        with _left_by_signals(), Live(console=console, screen=True, auto_refresh=False) as live:
            yield show
    finally:
        if shown:
            (out.data if to_stdout else tell)(drawn(shown[0]))


@contextmanager
def _left_by_signals() -> Iterator[None]:
    """On SIGTERM, or if the terminal is closed, the block still ends normally, so that the terminal's cursor and screen
    are restored."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lines(write: Callable[[str], None]) -> Callable[[WatchView], None]:
    """Changes since the previous refresh: a job's state or machine, a tenth of its steps, events."""
    from orchestrator.cli.invocation import current
    from orchestrator.cli.render.screens.watch import event_line, job_line
    from orchestrator.cli.render.text import shown

    known: dict[str, object] = {}
    events: set[str] = set()
    trouble = ""

    def show(view: WatchView) -> None:
        nonlocal trouble
        if view.trouble != trouble:
            trouble = view.trouble
            write(shown(f"cannot read the store: {trouble}" if trouble else "the store can be read again"))
        for event in view.events:
            if event.id not in events:
                events.add(event.id)
                write(current().here(shown(event_line(event, view.names.get(event.job_id or "", "-")))))
        for job in view.jobs:
            tenth = 10 * job.step // job.total_steps if job.total_steps else 0
            state = (job.state, job.offer_id, tenth)
            if known.get(job.id) != state:
                known[job.id] = state
                write(shown(job_line(job)))

    return show


def over(view: WatchView) -> bool:
    """Whether all shown jobs have ended."""
    return bool(view.jobs) and all(job.state in TERMINAL for job in view.jobs)
