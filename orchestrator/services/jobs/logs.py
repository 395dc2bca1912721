"""A job's log, joined from the logs of its runs and of their machines. After a migration, only the prefix of the lines
changes."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.jobs.trainer_spec import processes
from orchestrator.engine.machines.reap import SHIPS_LATE
from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Resources, Run
from orchestrator.services.jobs.run_files import LOG, Appended, appended, check_not_pruned, job_store, readable
from orchestrator.services.views import LogLine
from orchestrator.store import Tx
from providers.offer import short_zone
from providers.traits import shares_host

POLL_WALL_S = 0.2
LATE_WALL_S = 60.0
"""The output of a machine may arrive in the store this long after its run has ended."""
LAST_WORDS_WALL_S = 30.0
"""A machine of another host that is not booked yet may store the end of its log this long after its job has ended."""
LONGEST_LINE_BYTES = 1 << 16
"""Bytes shown of one line; for the rest, only the size is shown."""
PROGRESS_EVERY_S = 5.0
"""How often a line that a program keeps rewriting, such as a progress bar, is shown with `follow`."""
_MARK = re.compile(rb"\[rank (\d{1,9})\] ")  # trainers.process.launcher


def logs(installation: Installation, ref: str, *, follow: bool = False, rank: int | None = None) -> Iterator[LogLine]:
    """The lines so far, run by run, of all processes or of the process with this `rank`; with `follow` also new lines
    until the job ends.

    Raises NotFoundError, also if the log was deleted; UsageError if no run of the job has this rank; and StoreError if
    the store with a machine's log does not answer.
    """
    nothing = True
    for line in _lines(installation, ref, follow=follow, rank=rank):
        nothing = False
        if rank is None or line.rank == rank:
            yield line
    if nothing:
        with installation.store.read() as tx:
            job = tx.find_job(ref)
        check_not_pruned(installation, job, "logs")


def _lines(installation: Installation, ref: str, *, follow: bool, rank: int | None) -> Iterator[LogLine]:
    with installation.store.read() as tx:
        job = tx.find_job(ref)
        job_id = job.id
    tails: dict[tuple[str, int], _Tail] = {}
    numbers: dict[str, int] = {}
    ended_s: float | None = None
    while True:
        with (
            installation.store.read() as tx
        ):  # read before the logs, because nothing is written after the job has ended
            ended = tx.outline(job_id).state in TERMINAL
            runs = tx.runs(job_id=job_id, unreadable=left_out)
            alone = {run.id: _processes(tx, run, job.spec.resources) == 1 for run in runs}
            if rank is not None and runs:
                _check_rank(rank, max(_processes(tx, run, job.spec.resources) for run in runs))
        if ended:
            ended_s = installation.clock.monotonic_s() if ended_s is None else ended_s
            ships = any(
                run.end in SHIPS_LATE and run.billed_to_ms is None and not shares_host(run.offer_id) for run in runs
            )
            ended = not ships or installation.clock.monotonic_s() - ended_s > LAST_WORDS_WALL_S
        for run in runs:
            number = numbers.setdefault(run.id, len(numbers) + 1)
            for machine in range(run.nodes):
                if (run.id, machine) not in tails:
                    source = appended(installation, run, LOG, machine)
                    tails[run.id, machine] = _Tail(run, number, source, machine, alone[run.id])
                tails[run.id, machine].run = run
        found = False
        now = installation.clock.monotonic_s()
        with readable():
            for tail in tails.values():
                for line in tail.read(now):
                    found = True
                    yield line
                if follow and not ended:
                    yield from tail.progress(now)
        if ended or not follow:
            for tail in tails.values():
                yield from tail.rest()
            return
        if not found:
            remote = any(not shares_host(run.offer_id) for run in runs)
            poll_s = job_store(installation, job_id).poll_s if remote else 0.0
            installation.clock.sleep(max(POLL_WALL_S, poll_s))


def _processes(tx: Tx, run: Run, wanted: Resources) -> int:
    """The total number of processes of a run."""
    return run.nodes * processes(wanted, tx.offer(run.offer_id))


def _check_rank(rank: int, most: int) -> None:
    if not 0 <= rank < most:
        ranks = "one process: rank 0" if most == 1 else f"{most} processes: ranks 0 to {most - 1}"
        raise UsageError(f"there is no rank {rank}; the job has {ranks}", hint="omit --rank to see all of them")


@dataclass
class _Tail:
    """One log, read from where the last read stopped. Only whole lines are returned, so that no line mixes runs.

    At most a chunk and the beginning of a line are in memory; `more` counts the other bytes of that line. As on a
    terminal, text after a carriage return (`returned`) replaces the previous text of the line. Several processes of a
    `machine` share its log, in which each line begins with the rank; a single process (`alone`) is rank 0.
    """

    run: Run
    number: int
    source: Appended
    machine: int = 0
    alone: bool = True
    partial: bytes = b""
    more: int = 0
    returned: bool = False
    rewritten: bool = False
    shown: bytes = b""
    shown_s: float = -math.inf
    ended_s: float | None = None

    def read(self, now_s: float) -> Iterator[LogLine]:
        if self.run.end is not None:
            self.ended_s = now_s if self.ended_s is None else self.ended_s
            if now_s - self.ended_s > LATE_WALL_S:
                return
        for chunk in self.source.news():
            *lines, last = chunk.split(b"\n")
            for line in lines:
                self._add(line)
                known = self.rewritten and self.partial == self.shown
                shown = self._line()
                if not known:
                    yield shown
            self._add(last)

    def rest(self) -> Iterator[LogLine]:
        if self.partial and self.partial != self.shown:
            yield self._line()

    def progress(self, now_s: float) -> Iterator[LogLine]:
        """The current text of a line that a program keeps rewriting, if it has changed and was not shown recently."""
        if self.rewritten and self.partial not in (b"", self.shown) and now_s - self.shown_s >= PROGRESS_EVERY_S:
            text = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(self.partial)
            self.shown, self.shown_s = self.partial, now_s
            yield replace(self._shown(), text=text)  # without an incomplete character at its end

    def _add(self, part: bytes) -> None:
        first, *others = part.split(b"\r")
        self._append(first)
        for each in others:
            self.returned = True
            self._append(each)

    def _append(self, part: bytes) -> None:
        if not part:
            return
        if self.returned:
            mark = self._mark()
            self.partial, self.more = b"" if mark is None else mark[0], 0
            self.returned, self.rewritten = False, True
        room = LONGEST_LINE_BYTES - len(self.partial)
        self.partial += part[:room]
        self.more += max(0, len(part) - room)

    def _mark(self) -> re.Match[bytes] | None:
        return None if self.alone else _MARK.match(self.partial)

    def _line(self) -> LogLine:
        line = self._shown()
        self.partial, self.more, self.returned, self.rewritten, self.shown = b"", 0, False, False, b""
        return line

    def _shown(self) -> LogLine:
        text = self.partial.decode(errors="replace") + (f"...[{self.more} more bytes]" if self.more else "")
        mark = self._mark()
        rank = 0 if self.alone else None if mark is None else int(mark[1])
        return LogLine(self.run.id, self.number, short_zone(self.run.offer_id), text, rank, self.machine)
