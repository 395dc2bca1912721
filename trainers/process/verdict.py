"""Verdict: the report of a machine whose run has several processes, made from their ends.

When one process ends, the others fail soon after, because they cannot reach it. The report names the process that
failed for its own reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from trainers.control import LAST_STATES, Progress
from trainers.process.prewarm import describe_exit
from trainers.process.ranks import Rank


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a process ended: its exit status (minus the number of the signal that killed it), its last report, if any,
    and its last output. `by_us`: the launcher ended it because another process had ended.
    """

    rank: Rank
    status: int
    progress: Progress | None
    by_us: bool = False
    output: str = ""

    @property
    def state(self) -> str:
        """The reported final state; "died" without a report."""
        said = self.progress is not None and self.progress.state in LAST_STATES
        return self.progress.state if said and self.progress is not None else "died"

    @property
    def error(self) -> str:
        """Why the process did not finish."""
        if self.progress is not None and self.state == "failed":
            return f"{self.rank} failed\n{self.progress.error or ''}"
        said = f"\nThe end of its output:\n{self.output}" if self.output else ""
        return f"{describe_exit(self.status, str(self.rank))}{said}"


def verdict(ends: Sequence[RankEnd], shown: Progress) -> Progress:
    """The final report of the machine. `ends` in the order in which they ended; `shown` is the run's latest progress.

    A fenced or stopped rank has priority over a failed one, and a rank's own failure over the loss of a peer.
    """
    first = {end.state: end for end in reversed(ends) if not end.by_us}
    decisive = next((first[state] for state in ("fenced", "checkpointed_and_stopped") if state in first), None)
    if decisive is None:
        failures = [end for end in ends if end.state in ("failed", "died") and not end.by_us]
        own = [end for end in failures if end.progress is None or not end.progress.peer_lost]
        decisive = next(iter(own or failures), None)
    leader = min(ends, key=lambda end: end.rank.local_rank)
    base = leader.progress or shown
    base = dataclasses.replace(base, still_since_s=None, error=None, permanent=False, peer_lost=False)
    if decisive is None:
        return dataclasses.replace(base, state="finished")
    if decisive.state not in ("failed", "died"):
        assert decisive.progress is not None
        return dataclasses.replace(base, state=decisive.progress.state)
    said = decisive.progress
    return dataclasses.replace(
        base,
        state="failed",
        error=decisive.error,
        permanent=said is not None and said.permanent,
        peer_lost=said is not None and said.peer_lost,
    )
