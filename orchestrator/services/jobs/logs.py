"""A job's log, joined from the logs of its runs and of their machines. After a migration, only the prefix of the lines
changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.machines.reap import SHIPS_LATE
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Run
from orchestrator.services.jobs.run_files import LOG, Appended, appended, job_store, readable
from orchestrator.services.views import LogLine, short_zone
from providers.traits import shares_host

POLL_WALL_S = 0.2
LATE_WALL_S = 60.0
"""What a machine wrote may arrive in the store so long after its run has ended."""
LAST_WORDS_WALL_S = 30.0
"""A machine of another host that is not booked yet may store the last of its log so long after its job has ended."""
LONGEST_LINE_BYTES = 1 << 16
"""Bytes shown of one line; of the rest, only the size is shown."""


def logs(installation: Installation, ref: str, *, follow: bool = False) -> Iterator[LogLine]:
    """The lines so far, run by run; with `follow` also new ones until the job ends.

    Raises NotFoundError, and StoreError if the store with a machine's log does not answer.
    """
    with installation.store.read() as tx:
        job_id = tx.find_job(ref).id
    tails: dict[tuple[str, int], _Tail] = {}
    numbers: dict[str, int] = {}
    ended_s: float | None = None
    while True:
        with installation.store.read() as tx:  # before the logs are read: nothing is written after it has ended
            ended = tx.outline(job_id).state in TERMINAL
            runs = tx.runs(job_id=job_id, unreadable=left_out)
        if ended:
            ended_s = installation.clock.monotonic_s() if ended_s is None else ended_s
            ships = any(
                run.end in SHIPS_LATE and run.billed_to_ms is None and not shares_host(run.offer_id) for run in runs
            )
            ended = not ships or installation.clock.monotonic_s() - ended_s > LAST_WORDS_WALL_S
        for run in runs:
            number = numbers.setdefault(run.id, len(numbers) + 1)
            for rank in range(run.nodes):
                if (run.id, rank) not in tails:
                    tails[run.id, rank] = _Tail(run, number, appended(installation, run, LOG, rank))
                tails[run.id, rank].run = run
        found = False
        now = installation.clock.monotonic_s()
        with readable():
            for tail in tails.values():
                for line in tail.read(now):
                    found = True
                    yield line
        if ended or not follow:
            for tail in tails.values():
                yield from tail.rest()
            return
        if not found:
            remote = any(not shares_host(run.offer_id) for run in runs)
            poll_s = job_store(installation, job_id).poll_s if remote else 0.0
            installation.clock.sleep(max(POLL_WALL_S, poll_s))


@dataclass
class _Tail:
    """One log, read from where the last read stopped. Only whole lines are returned, so that no line mixes runs.

    At most a chunk and the beginning of a line are in memory; `more` counts the bytes of that line that are not.
    """

    run: Run
    number: int
    source: Appended
    partial: bytes = b""
    more: int = 0
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
                yield self._line()
            self._add(last)

    def rest(self) -> Iterator[LogLine]:
        if self.partial:
            yield self._line()

    def _add(self, part: bytes) -> None:
        room = LONGEST_LINE_BYTES - len(self.partial)
        self.partial += part[:room]
        self.more += max(0, len(part) - room)

    def _line(self) -> LogLine:
        text = self.partial.decode(errors="replace").rstrip("\r") + (
            f"...[{self.more} more bytes]" if self.more else ""
        )
        self.partial, self.more = b"", 0
        return LogLine(self.run.id, self.number, short_zone(self.run.offer_id), text)
