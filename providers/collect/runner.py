"""The parent's side: which regions are due, one child process per provider, and every poll recorded.

It keeps a few numbers per offer and never imports a cloud's library. Facts go to a sink, already judged: prices that
changed, rows that were flagged, and for each poll what came of it, so that "no change" and "no data" stay different.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import IO, Any, Protocol, TypeAlias

from providers.clock import Clock
from providers.collect.anchors import Anchors
from providers.collect.child import Task, request
from providers.collect.facts import UNLISTED, FlaggedFinding, Signal
from providers.collect.judge import Changes, Judge
from providers.collect.schedule import Schedule
from providers.collect.sources import history_of, source_kind
from providers.collect.wire import Batch, Ended, Message, Regions, decode
from providers.errors import FormatError, ProviderError, TimedOutError, UnavailableError
from providers.offer import Offer
from providers.price import PricePoint

RELIST_MS = 24 * 3_600_000
START_S = 60.0
"""A child may be silent so long at first: Python and a cloud's library take their time on a busy machine."""


Inbox: TypeAlias = "queue.Queue[tuple[_Child, Message | None]]"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source that is to be collected; `options` travel as JSON. `cadence_s` None: what its kind usually takes."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cadence_s: float | None = None


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """What came of one poll. It happened, whether or not anything changed; `error` says why it may be incomplete.

    `offers` were seen, `changed` prices were news, `flagged` rows left out; `passed` counts those that are none of
    ours, by reason. `newest_ms` is the newest change that the region has; it is what the next poll may start from, and
    None when this one was not whole. `suspect` says why the sink does not believe it, though it succeeded.
    """

    source: str
    region: str
    started_at_ms: int
    ended_at_ms: int
    offers: int = 0
    changed: int = 0
    flagged: int = 0
    pages: int = 0
    rows: int = 0
    newest_ms: int | None = None
    error: ProviderError | None = None
    suspect: str = ""
    passed: Mapping[str, int] = field(default_factory=dict)


class Sink(Protocol):
    """Where facts go. Called from one thread; offers of a region always come before the prices that name them.

    Batches of several regions may take turns. What a sink raises ends the round: children are stopped, regions that
    have not ended are due again, and their news will be told again.
    """

    def offers(self, source: str, region: str, offers: Sequence[Offer]) -> None: ...

    def prices(self, source: str, region: str, points: Sequence[PricePoint]) -> None:
        """Only changes, and only what is payable; which of them are not to be chosen comes as flags."""
        ...

    def flagged(self, source: str, region: str, flagged: Sequence[FlaggedFinding]) -> None:
        """Rows to keep with their reason. A row comes again with every poll that sees it; a price that was sound before
        may come, too: it is not to be chosen from now on."""
        ...

    def signals(self, source: str, region: str, signals: Sequence[Signal]) -> None: ...

    def ended(self, poll: PollOutcome) -> None:
        """The region's poll is over; everything of it has been handed in."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """What a store remembers of earlier polls, by whatever collector: offers with their newest payable price; the
    newest change by (source, region); the outliers that wait for a second report, by offer; the implausible prices that
    wait for a second source, by offer and source; and where the last poll was not whole."""

    prices: Sequence[tuple[Offer, PricePoint]] = ()
    newest_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    doubted: Mapping[str, PricePoint] = field(default_factory=dict)
    questioned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    half: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall seconds: a child silent for `silence_s`, or at work for `total_s`, is killed. `workers` regions at once."""

    silence_s: float = 300.0
    total_s: float = 1800.0
    workers: int = 8


class Collector:
    """Collects from `specs` into `sink`. On-demand prices should come before spot prices in `specs`.

    `recall` tells what a store knows, at the begin of each round: another collector may have written to it. Without it,
    nothing is known but what this one saw. `chance` gives the jitter.
    """

    def __init__(
        self,
        specs: Sequence[SourceSpec],
        sink: Sink,
        clock: Clock,
        chance: random.Random,
        *,
        recall: Callable[[], Known] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._cadence_s = {spec.name: spec.cadence_s or source_kind(spec.name).cadence_s for spec in specs}
        self._sink = sink
        self._clock = clock
        self._limits = Limits() if limits is None else limits
        self._schedule = Schedule(chance)
        self._recall = recall
        self._anchors = Anchors()
        self._judge = Judge(anchors=self._anchors)
        self._changes = Changes()
        self._newest_ms: dict[tuple[str, str], int] = {}
        self._half: set[tuple[str, str]] = set()
        self._listed_ms: dict[str, int] = {}
        self._stopped = threading.Event()
        for name in self._specs:
            self._schedule.follow(name, [UNLISTED], clock.now_ms())

    def next_ms(self) -> int | None:
        """When something is due next, on the clock; None without any source."""
        return self._schedule.next_ms(self._clock.now_ms())

    def stop(self) -> None:
        """End a `collect` that another thread is in, and every later one, at once: what has not ended is due again."""
        self._stopped.set()

    def collect(self) -> list[PollOutcome]:
        """PollOutcome everything that is due and hand it to the sink. Returns when all children have ended. Never
        raises for what a provider does."""
        self._remember()
        inbox: Inbox = queue.Queue(64)
        rounds: dict[_Child, _Round] = {}
        polls: list[PollOutcome] = []
        try:
            self._start_due(rounds, inbox)
            first = set(rounds)
            while rounds and not self._stopped.is_set():
                try:
                    child, message = inbox.get(timeout=0.2)
                except queue.Empty:
                    pass
                else:
                    if message is None:
                        polls += self._unfinished(rounds[child], child.last_words())
                        del rounds[child]
                        child.end()
                    else:
                        child.heard_s = self._clock.monotonic_s()
                        polls += self._take(rounds[child], message)
                for child in rounds:
                    self._cut_if_silent(child)
                if not first.isdisjoint(rounds):  # while those take their time, others must not wait
                    self._start_due(rounds, inbox)
        finally:
            for child in rounds:
                child.end()
        return polls

    def _remember(self) -> None:
        if self._recall is not None:
            known = self._recall()
            self._judge = Judge(known.prices, known.doubted, known.questioned, self._anchors)
            self._changes = Changes(known.prices)
            self._newest_ms, self._half = dict(known.newest_ms), set(known.half)

    def _start_due(self, rounds: dict[_Child, _Round], inbox: Inbox) -> None:
        """A child for every provider that has something due and no child at work."""
        for provider, tasks in self._tasks_by_provider({child.provider for child in rounds}).items():
            child = _Child(provider, tasks, self._limits.workers)
            rounds[child] = _Round(child.tasks)
            child.start(inbox, self._clock)

    def _tasks_by_provider(self, busy: Set[str]) -> dict[str, list[Task]]:
        now_ms = self._clock.now_ms()
        tasks: dict[str, list[Task]] = {}
        for name, spec in self._specs.items():
            provider = name.partition(":")[0].partition("-")[0]
            due = [] if provider in busy else self._schedule.due(name, now_ms)
            if not due:
                continue
            relist = UNLISTED in due or abs(now_ms - self._listed_ms.get(name, 0)) >= RELIST_MS
            since = {region: at for (source, region), at in self._newest_ms.items() if source == name}
            tasks.setdefault(provider, []).append(Task(name, spec.options, None if relist else due, since))
        return tasks

    def _cut_if_silent(self, child: _Child) -> None:
        now_s = self._clock.monotonic_s()
        silence_s = self._limits.silence_s if child.heard_s > child.started_s else max(self._limits.silence_s, START_S)
        if now_s - child.heard_s > silence_s or now_s - child.started_s > self._limits.total_s:
            child.kill(f"said nothing for {self._limits.silence_s:g} s, or took more than {self._limits.total_s:g} s")

    def _take(self, round_: _Round, message: Message) -> list[PollOutcome]:
        now_ms = self._clock.now_ms()
        match message:
            case Regions(source, names, error):
                round_.expect(source, names)
                if error is None and not names:
                    error = FormatError(f"{source} names no region at all", hint="it is asked again")
                if error is not None:
                    waiting = self._schedule.due(source, now_ms) or [UNLISTED]
                    return [self._end(_Progress(source, region, now_ms), error) for region in waiting]
                if round_.relists(source):
                    self._listed_ms[source] = now_ms
                    self._schedule.follow(source, names, now_ms)
                return []
            case Batch():
                self._take_batch(round_.progress(message.source, message.region, now_ms), message)
                return []
            case Ended():
                progress = round_.finished(message.source, message.region, now_ms)
                progress.started_at_ms, progress.passed = message.started_at_ms, message.passed
                progress.pages, progress.rows = message.pages, message.rows
                return [self._end(progress, message.error, message.ended_at_ms)]

    def _take_batch(self, progress: _Progress, batch: Batch) -> None:
        source, region = batch.source, batch.region
        if batch.offers:
            progress.offers.update((offer.id, offer) for offer in batch.offers)
            self._sink.offers(source, region, batch.offers)
        flagged = list(batch.flagged)
        if batch.points:
            offers = list(progress.offers.values())
            history = history_of(source)
            judge = progress.judge if history == "only" else self._judge
            judged = judge.judge(offers, batch.points, source)
            flagged += judged.flagged
            payable = self._changes.past(judged.payable) if history == "only" else judged.payable
            unheard = (source, region) in self._half or (source, region) not in self._newest_ms
            late = history == "only" or (history == "too" and unheard)
            news = self._changes.missing(payable) if late else self._changes.news(payable)
            progress.news += news
            newest = max(point.effective_at_ms for point in batch.points)
            progress.newest_ms = max(newest, progress.newest_ms or newest)
            if news:
                self._sink.prices(source, region, news)
        if flagged:
            progress.flagged += len(flagged)
            self._sink.flagged(source, region, flagged)
        if batch.signals:
            self._sink.signals(source, region, batch.signals)

    def _unfinished(self, round_: _Round, last_words: str) -> list[PollOutcome]:
        """A child has ended: regions that it did not finish keep what they had, and are marked."""
        return [self._end(progress, _dead(last_words)) for progress in round_.open(self._clock.now_ms())]

    def _end(self, progress: _Progress, error: ProviderError | None, ended_at_ms: int | None = None) -> PollOutcome:
        now_ms = self._clock.now_ms()
        source, region = progress.source, progress.region
        newest_ms = progress.newest_ms if error is None else None
        poll = PollOutcome(
            source,
            region,
            progress.started_at_ms,
            now_ms if ended_at_ms is None else ended_at_ms,
            len(progress.offers),
            len(progress.news),
            progress.flagged,
            progress.pages,
            progress.rows,
            newest_ms,
            error,
            passed=progress.passed,
        )
        self._sink.ended(poll)
        # Only now: had the sink failed (a full disk), the same region would be due again and the same news be news.
        self._changes.keep(progress.news)
        (self._half.discard if error is None else self._half.add)((source, region))
        if newest_ms is not None:
            self._newest_ms[source, region] = newest_ms
        self._schedule.done(source, region, now_ms, self._cadence_s[source], error)
        return poll


def _dead(last_words: str) -> ProviderError:
    if last_words.startswith("said nothing"):
        return TimedOutError(f"the collector's process {last_words}", hint="what it found by then is kept")
    return UnavailableError(f"the collector's process ended early: {last_words}", hint="what it found by then is kept")


@dataclass(slots=True)
class _Progress:
    """One region's poll while its lines arrive."""

    source: str
    region: str
    started_at_ms: int
    offers: dict[str, Offer] = field(default_factory=dict)
    news: list[PricePoint] = field(default_factory=list)
    flagged: int = 0
    pages: int = 0
    rows: int = 0
    passed: Mapping[str, int] = field(default_factory=dict)
    newest_ms: int | None = None
    judge: Judge = field(default_factory=Judge)  # of a history: what was right once says nothing of what is told now


class _Round:
    """What one child still owes."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._relisted = {task.source for task in tasks if task.regions is None}
        self._owed: dict[tuple[str, str], _Progress | None] = {}
        for task in tasks:
            for region in [UNLISTED] if task.regions is None else task.regions:
                self._owed[task.source, region] = None

    def relists(self, source: str) -> bool:
        return source in self._relisted

    def expect(self, source: str, regions: Iterable[str]) -> None:
        self._owed.pop((source, UNLISTED), None)
        self._owed.update({(source, region): None for region in regions})

    def progress(self, source: str, region: str, now_ms: int) -> _Progress:
        found = self._owed.get((source, region))
        if found is None:
            found = self._owed[source, region] = _Progress(source, region, now_ms)
        return found

    def finished(self, source: str, region: str, now_ms: int) -> _Progress:
        found = self.progress(source, region, now_ms)
        del self._owed[source, region]
        return found

    def open(self, now_ms: int) -> list[_Progress]:
        return [self.progress(source, region, now_ms) for source, region in list(self._owed)]


class _Child:
    """The process of one provider, and the thread that reads it."""

    def __init__(self, provider: str, tasks: Sequence[Task], workers: int) -> None:
        self.provider = provider
        self.tasks = tasks
        self.started_s = self.heard_s = 0.0
        self._workers = workers
        self._killed_for = ""
        self._over = False
        self._reader: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[str] | None = None

    def start(self, inbox: Inbox, clock: Clock) -> None:
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 closed in end()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "providers.collect.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(request(self.tasks, self._workers))
        self._process.stdin.flush()  # and left open: its end is the child's sign that we are gone
        self.started_s = self.heard_s = clock.monotonic_s()
        self._reader = threading.Thread(target=self._read, args=(inbox,), daemon=True)
        self._reader.start()

    def _read(self, inbox: Inbox) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._put(inbox, decode(line))
            except FormatError as error:
                self.kill(str(error))
        self._process.wait()
        self._put(inbox, None)

    def _put(self, inbox: Inbox, message: Message | None) -> None:
        """Wait for room, as long as anybody takes messages out."""
        while not self._over:
            try:
                inbox.put((self, message), timeout=0.5)
            except queue.Full:
                continue
            return

    def kill(self, reason: str) -> None:
        if self._process is not None and self._process.poll() is None:
            self._killed_for = self._killed_for or reason
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def last_words(self) -> str:
        """Why it ended, as far as is known."""
        assert self._process is not None
        assert self._stderr is not None
        if self._killed_for:
            return self._killed_for
        self._stderr.seek(0)
        said = [line.strip() for line in self._stderr.read()[-4000:].splitlines() if line.strip()]
        return f"exit code {self._process.returncode}" + (f", {said[-1]}" if said else "")

    def end(self) -> None:
        self.kill("the collector was stopped")
        self._over = True
        if self._process is not None:
            self._process.wait()
        if self._reader is not None:
            self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._stderr) if self._process else ():
            if stream is not None and not stream.closed:
                stream.close()
