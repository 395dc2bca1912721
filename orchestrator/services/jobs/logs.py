"""A job's log, joined from the logs of its runs. After a migration, only the prefix of the lines changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Run
from orchestrator.services.views import LogLine, short_zone

POLL_WALL_S = 0.2
CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 16
"""Bytes shown of one line; of the rest, only the size is shown."""


def logs(installation: Installation, ref: str, *, follow: bool = False) -> Iterator[LogLine]:
    """The lines so far, run by run; with `follow` also new ones until the job ends. Raises NotFoundError."""
    with installation.store.read() as tx:
        job_id = tx.find_job(ref).id
    tails: dict[str, _Tail] = {}
    while True:
        with installation.store.read() as tx:
            ended = tx.outline(job_id).state in TERMINAL  # asked before reading: nothing is written after it
            runs = tx.runs(job_id=job_id, unreadable=left_out)
        for run in runs:
            tails.setdefault(run.id, _Tail(run, len(tails) + 1, installation.run_dir(run.id) / "log"))
        found = False
        for tail in tails.values():
            for line in tail.read():
                found = True
                yield line
        if ended or not follow:
            for tail in tails.values():
                yield from tail.rest()
            return
        if not found:
            installation.clock.sleep(POLL_WALL_S)


@dataclass
class _Tail:
    """One log file, read from where the last read stopped. Only whole lines are returned, so that no line mixes runs.

    At most a chunk and the beginning of a line are in memory; `more` counts the bytes of that line that are not.
    """

    run: Run
    number: int
    path: Path
    offset: int = 0
    partial: bytes = b""
    more: int = 0

    def read(self) -> Iterator[LogLine]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                while chunk := file.read(CHUNK_BYTES):
                    self.offset += len(chunk)
                    *lines, last = chunk.split(b"\n")
                    for line in lines:
                        self._add(line)
                        yield self._line()
                    self._add(last)
        except FileNotFoundError:
            return  # the run has not started

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
