"""The parent's side of collection: runs one child process per provider for the regions that are due, and records every
poll.

It keeps a few numbers per offer and never imports a cloud's library. Checked results go to a sink: prices that changed,
flagged rows, and the outcome of every poll, so that "no change" and "no data" remain different.
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
"""How long a child may be silent at first: Python and a cloud's library load slowly on a busy machine."""


Inbox: TypeAlias = "queue.Queue[tuple[_Child, Message | None]]"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source to collect; `options` are JSON values. `cadence_s` None: the usual interval of its kind."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cadence_s: float | None = None


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """The outcome of one poll, whether or not anything changed; `error` says why it may be incomplete.

    `offers` is how many offers were seen, `changed` how many prices changed, `flagged` how many rows were flagged;
    `skipped` counts irrelevant rows by reason. `newest_ms` is the newest change in the region, from which the next poll
    may start; None if this poll was incomplete. `suspect` says why the sink does not accept it although it succeeded.
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
    skipped: Mapping[str, int] = field(default_factory=dict)


class Sink(Protocol):
    """Receives results. Called from one thread; offers of a region always come before the prices that refer to them.

    Batches of several regions may be interleaved. An exception from the sink ends the round: children are stopped, and
    unfinished regions are due again and report the same changes again.
    """

    def offers(self, source: str, region: str, offers: Sequence[Offer]) -> None:
        """Offers that a poll of the region found."""
        ...

    def prices(self, source: str, region: str, points: Sequence[PricePoint]) -> None:
        """Only changes, and only payable prices; flags say which of them must not be chosen."""
        ...

    def flagged(self, source: str, region: str, flagged: Sequence[FlaggedFinding]) -> None:
        """Rows to keep with their reason. A row is repeated by every poll that sees it; a price that was accepted
        before may be included and must not be chosen from now on.
        """
        ...

    def signals(self, source: str, region: str, signals: Sequence[Signal]) -> None:
        """Risk signals that a poll of the region found."""
        ...

    def ended(self, poll: PollOutcome) -> None:
        """The poll of the region has ended, and everything it found has been handed over."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """What a store knows from earlier polls of any collector.

    `prices` are offers with their newest payable price; `newest_ms` the newest change by (source, region);
    `unconfirmed` the outliers that wait for a second report, by offer; `implausible` the implausible prices that wait
    for a second source, by offer and source; `incomplete` the (source, region) pairs whose last poll was incomplete.
    """

    prices: Sequence[tuple[Offer, PricePoint]] = ()
    newest_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unconfirmed: Mapping[str, PricePoint] = field(default_factory=dict)
    implausible: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    incomplete: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """In wall seconds: a child that is silent for `silence_s` or runs for `total_s` is killed. `workers` is how many
    regions are polled at once.
    """

    silence_s: float = 300.0
    total_s: float = 1800.0
    workers: int = 8


class Collector:
    """Collects from `specs` into `sink`. On-demand prices should come before spot prices in `specs`.

    `recall` returns what the store knows; it is called at the start of each round, because other collectors may write
    there, too. Without it, only this collector's own results are known. `chance` provides the jitter.
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
        self._incomplete: set[tuple[str, str]] = set()
        self._listed_ms: dict[str, int] = {}
        self._stopped = threading.Event()
        for name in self._specs:
            self._schedule.follow(name, [UNLISTED], clock.now_ms())

    def next_ms(self) -> int | None:
        """When the next poll is due (epoch ms); None without any source."""
        return self._schedule.next_ms(self._clock.now_ms())

    def stop(self) -> None:
        """End a running `collect` in another thread, and every later one, at once. Unfinished regions are due again."""
        self._stopped.set()

    def collect(self) -> list[PollOutcome]:
        """Poll everything that is due and hand it to the sink. Returns when all children have ended.

        Never raises for an error of a provider; raises what the sink raises.
        """
        self._remember()
        inbox: Inbox = queue.Queue(64)
        rounds: dict[_Child, _OpenPolls] = {}
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
                        polls += self._unfinished(rounds[child], child.exit_reason())
                        del rounds[child]
                        child.end()
                    else:
                        child.heard_s = self._clock.monotonic_s()
                        polls += self._take(rounds[child], message)
                for child in rounds:
                    self._cut_if_silent(child)
                if not first.isdisjoint(rounds):  # a slow provider must not delay others that become due
                    self._start_due(rounds, inbox)
        finally:
            for child in rounds:
                child.end()
        return polls

    def _remember(self) -> None:
        if self._recall is not None:
            known = self._recall()
            self._judge = Judge(known.prices, known.unconfirmed, known.implausible, self._anchors)
            self._changes = Changes(known.prices)
            self._newest_ms, self._incomplete = dict(known.newest_ms), set(known.incomplete)

    def _start_due(self, rounds: dict[_Child, _OpenPolls], inbox: Inbox) -> None:
        """Start a child for every provider that has something due and no running child."""
        for provider, tasks in self._tasks_by_provider({child.provider for child in rounds}).items():
            child = _Child(provider, tasks, self._limits.workers)
            rounds[child] = _OpenPolls(child.tasks)
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
            child.kill(f"timed out: silent for {self._limits.silence_s:g} s, or longer than {self._limits.total_s:g} s")

    def _take(self, round_: _OpenPolls, message: Message) -> list[PollOutcome]:
        now_ms = self._clock.now_ms()
        match message:
            case Regions(source, names, error):
                round_.expect(source, names)
                if error is None and not names:
                    error = FormatError(f"{source} returned no regions", hint="the next poll tries again")
                if error is not None:
                    affected = self._schedule.due(source, now_ms) or [UNLISTED]
                    return [self._end(_Progress(source, region, now_ms), error) for region in affected]
                if round_.relists(source):
                    self._listed_ms[source] = now_ms
                    self._schedule.follow(source, names, now_ms)
                return []
            case Batch():
                self._take_batch(round_.progress(message.source, message.region, now_ms), message)
                return []
            case Ended():
                progress = round_.finished(message.source, message.region, now_ms)
                progress.started_at_ms, progress.skipped = message.started_at_ms, message.skipped
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
            not_complete = (source, region) in self._incomplete or (source, region) not in self._newest_ms
            late = history == "only" or (history == "too" and not_complete)
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

    def _unfinished(self, round_: _OpenPolls, exit_reason: str) -> list[PollOutcome]:
        """A child has ended: regions that it did not finish keep what was found, with an error."""
        return [self._end(progress, _dead(exit_reason)) for progress in round_.open(self._clock.now_ms())]

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
            skipped=progress.skipped,
        )
        self._sink.ended(poll)
        # Only now: if the sink fails (a full disk), the region is due again and must report the same changes again.
        self._changes.keep(progress.news)
        (self._incomplete.discard if error is None else self._incomplete.add)((source, region))
        if newest_ms is not None:
            self._newest_ms[source, region] = newest_ms
        self._schedule.done(source, region, now_ms, self._cadence_s[source], error)
        return poll


def _dead(exit_reason: str) -> ProviderError:
    if exit_reason.startswith("timed out"):
        return TimedOutError(f"the collector's process {exit_reason}", hint="earlier results are kept")
    return UnavailableError(f"the collector's process ended early: {exit_reason}", hint="earlier results are kept")


@dataclass(slots=True)
class _Progress:
    """One region's poll while its batches arrive."""

    source: str
    region: str
    started_at_ms: int
    offers: dict[str, Offer] = field(default_factory=dict)
    news: list[PricePoint] = field(default_factory=list)
    flagged: int = 0
    pages: int = 0
    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    newest_ms: int | None = None
    judge: Judge = field(default_factory=Judge)  # for a history: its prices are not compared with current ones


class _OpenPolls:
    """The polls of one child that have not ended yet."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._relisted = {task.source for task in tasks if task.regions is None}
        self._open: dict[tuple[str, str], _Progress | None] = {}
        for task in tasks:
            for region in [UNLISTED] if task.regions is None else task.regions:
                self._open[task.source, region] = None

    def relists(self, source: str) -> bool:
        return source in self._relisted

    def expect(self, source: str, regions: Iterable[str]) -> None:
        self._open.pop((source, UNLISTED), None)
        self._open.update({(source, region): None for region in regions})

    def progress(self, source: str, region: str, now_ms: int) -> _Progress:
        found = self._open.get((source, region))
        if found is None:
            found = self._open[source, region] = _Progress(source, region, now_ms)
        return found

    def finished(self, source: str, region: str, now_ms: int) -> _Progress:
        found = self.progress(source, region, now_ms)
        del self._open[source, region]
        return found

    def open(self, now_ms: int) -> list[_Progress]:
        return [self.progress(source, region, now_ms) for source, region in list(self._open)]


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
        self._process.stdin.flush()  # left open: the child exits when it closes
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
        """Wait for room in the queue while it is being read."""
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

    def exit_reason(self) -> str:
        """Why it ended, as far as is known."""
        assert self._process is not None
        assert self._stderr is not None
        if self._killed_for:
            return self._killed_for
        self._stderr.seek(0)
        printed = [line.strip() for line in self._stderr.read()[-4000:].splitlines() if line.strip()]
        return f"exit code {self._process.returncode}" + (f", {printed[-1]}" if printed else "")

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
