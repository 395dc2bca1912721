"""Turns: the jobs that are decided in this tick. Their number is limited, so the duration of a tick does not grow with
the number of jobs.

A decision takes some milliseconds, and a price, a loss or a notice makes one due for every job. A tick takes a few of
those that are due, and the next ones continue. Jobs that need a machine come first, but some of the places are for the
others. In both groups, the job that has waited longest since its last decision is next, so every job gets its turn. A
job that is losing its machine never waits behind jobs for which there is no machine. The number does not depend on the
speed of this host: the same events give the same decisions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

AT_ONCE = 3
"""Decisions in one tick."""
FOR_OTHERS = 1
"""How many of these are for due jobs that do not need a machine. They lose nothing by waiting for one of the next
ticks."""


@dataclass
class Turns:
    """The jobs for which a decision is due, and when each had its last decision. It is not stored: the next control
    plane decides about all jobs at once."""

    _due: set[str] = field(default_factory=set)
    _had: dict[str, int] = field(default_factory=dict)  # the number of its last decision
    _content: set[str] = field(default_factory=set)  # jobs that needed no machine when they were last seen
    _number: int = 0
    _again: dict[str, int] = field(default_factory=dict)  # the round in which `ask_again` chose it last
    _round: int = 0
    _unable: set[str] = field(default_factory=set)  # a decision was due, but not possible

    @property
    def waiting(self) -> bool:
        """Whether a due decision has not had its turn yet."""
        return bool(self._due)

    def ask(self, job_ids: Collection[str]) -> None:
        """Make a decision due for these jobs."""
        self._due |= {*job_ids}

    @property
    def due(self) -> frozenset[str]:
        """The jobs for which a decision is due."""
        return frozenset(self._due)

    def ask_again(self, job_ids: Collection[str], most: int) -> None:
        """Make a decision due for at most this many of these jobs: first those that this method never chose, then those
        that it chose longest ago; and for all jobs whose decision was not possible when it was due."""
        self.ask(self._unable.intersection(job_ids))
        self._again = {job_id: number for job_id, number in self._again.items() if job_id in job_ids}
        chosen = sorted(job_ids, key=lambda job_id: (self._again.get(job_id, -1), job_id))[:most]
        self._round += 1
        self._again |= dict.fromkeys(chosen, self._round)
        self.ask(chosen)

    def take(
        self,
        jobs: Collection[str],
        in_need: Collection[str],
        known: Collection[str],
        leaving: Collection[str] = (),
    ) -> list[str]:
        """The jobs to decide now, in the order of their ids. `jobs` are all that the control plane can decide at
        present, and `in_need` those of them that need a machine; for all other jobs, a decision is no longer due. The
        last turns of all `known` jobs count: a job whose machine is refused is back at once, but not first. They no
        longer count for a job that needs a machine now but did not before. One of `leaving`, whose machines are about
        to be taken away, is always included."""
        newly = self._content.intersection(in_need)
        self._content = self._content.union(jobs).difference(in_need).intersection(known)
        self._had = {job_id: had for job_id, had in self._had.items() if job_id in known and job_id not in newly}
        self._unable = (self._unable | self._due).difference(jobs).intersection(known)
        due = sorted(self._due.intersection(jobs), key=lambda job_id: (self._had.get(job_id, -1), job_id))
        first = [job_id for job_id in due if job_id in in_need]
        others = [job_id for job_id in due if job_id not in in_need]
        room = AT_ONCE - min(len(others), FOR_OTHERS)
        taken = [job_id for job_id in first if job_id in leaving][:1]
        taken += [job_id for job_id in first if job_id not in taken][: room - len(taken)]
        taken += others[:FOR_OTHERS]
        self._due = {*due}.difference(taken)
        for job_id in taken:
            self._number += 1
            self._had[job_id] = self._number
        return sorted(taken)
