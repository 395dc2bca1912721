"""TimeBreakdown: assigns every millisecond that a machine was billed to exactly one of seven categories.

    billed_from      training_from                                training_to            billed_to
        | provisioning   | useful, lost work, checkpoint; rest: idle,  | migration or idle  |
        |                | or unreported if steps were not reported    |                    |

All values are integers and their sum is exact. What a trainer measured in wall seconds is converted by the clock's
factor and limited to the time available.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from operator import add

from orchestrator.model import Run, trained


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Milliseconds of market time.

    `unreported_ms` is the time in which a program ran that reported no steps, or some that are only known from the
    checkpoint that a later run restored; how much of it was useful is not known.
    `lost_work_ms` is time spent on steps that an earlier run had done and lost. `migration_ms` is what a run was billed
    while being replaced, or for an aborted takeover from a machine that trained. `idle_ms` is the rest: waiting as a
    standby, being quiesced, stalls, and the time between the last step and the end of billing.
    """

    useful_ms: int = 0
    checkpoint_ms: int = 0
    lost_work_ms: int = 0
    provisioning_ms: int = 0
    migration_ms: int = 0
    idle_ms: int = 0
    unreported_ms: int = 0

    @property
    def total_ms(self) -> int:
        """The billed time: the sum of all seven."""
        return sum(astuple(self))

    def __add__(self, other: TimeBreakdown) -> TimeBreakdown:
        return TimeBreakdown(*map(add, astuple(self), astuple(other)))


def job_breakdown(runs: Sequence[Run], upto_ms: int, *, factor: float = 1.0) -> TimeBreakdown:
    """The breakdown of all runs of one job. If nothing trained while a machine was awaited that was given up before it
    did, it was awaited for a start, not for a move."""
    found, unseen = TimeBreakdown(), _unseen(runs)
    for run in runs:
        parts = time_breakdown(run, upto_ms, factor=factor, unseen_steps=unseen.get(run.id, 0))
        if run.end == "aborted" and not any(_trained_during(other, run) for other in runs):
            parts = replace(parts, provisioning_ms=parts.provisioning_ms + parts.migration_ms, migration_ms=0)
        found += parts
    return found


def _unseen(runs: Sequence[Run]) -> dict[str, int]:
    """By run, the steps that it made but that no report has, for example after a backup was restored: the next run that
    trained began beyond all that was reported before."""
    found, reached = {}, 0
    for before, run in pairwise(sorted(trained(runs), key=lambda run: run.generation)):
        reached = max(reached, before.last_step)
        found[before.id] = max(0, run.start_step - reached)
    return found


def _trained_during(other: Run, run: Run) -> bool:
    """Whether another run trained when this one was decided."""
    began_ms, ended_ms = other.training_from_ms, other.training_to_ms
    return began_ms is not None and began_ms <= run.created_at_ms and (ended_ms is None or run.created_at_ms < ended_ms)


def time_breakdown(run: Run, upto_ms: int, *, factor: float = 1.0, unseen_steps: int = 0) -> TimeBreakdown:
    """The breakdown of the time billed to `run` up to `upto_ms`, over all its machines. `factor`: market seconds per
    wall second (Clock.factor). `unseen_steps`: those that it made besides the ones that it reported."""
    if not run.members:
        return of_one_machine(run, upto_ms, factor=factor, unseen_steps=unseen_steps)
    alone = (
        replace(run, members=(), billed_from_ms=m.billed_from_ms, billed_to_ms=m.billed_to_ms) for m in run.members
    )
    parts = (of_one_machine(each, upto_ms, factor=factor, unseen_steps=unseen_steps) for each in alone)
    return sum(parts, TimeBreakdown())


def of_one_machine(run: Run, upto_ms: int, *, factor: float = 1.0, unseen_steps: int = 0) -> TimeBreakdown:
    """The breakdown of the run's billed interval, as if it were that of one machine."""
    if run.billed_from_ms is None:
        return TimeBreakdown()
    start = run.billed_from_ms
    end = max(start, upto_ms if run.billed_to_ms is None else min(upto_ms, run.billed_to_ms))
    if run.end == "aborted":
        return TimeBreakdown(migration_ms=end - start)
    if run.training_from_ms is None:
        return TimeBreakdown(provisioning_ms=end - start)
    trained_from = min(max(run.training_from_ms, start), end)
    trained_to = end if run.training_to_ms is None else min(max(run.training_to_ms, trained_from), end)

    wanted = min(max(run.created_at_ms, start), trained_from)  # a standby waited until then
    left = trained_to - trained_from
    checkpoint = min(_market_ms(run.checkpoint_s, factor), left)
    worked = min(_market_ms(run.useful_s, factor), left - checkpoint)
    repeated = min(_market_ms(run.repeated_steps * (run.step_wall_s or 0.0), factor), worked)
    tail = end - trained_to
    replaced = run.end == "moved" or run.state == "quiesced"
    rest = left - checkpoint - worked
    if (run.last_step == 0 and run.useful_s == 0) or (unseen_steps and not run.step_wall_s):
        unreported = rest
    else:
        unreported = min(rest, _market_ms(unseen_steps * (run.step_wall_s or 0.0), factor))
    return TimeBreakdown(
        useful_ms=worked - repeated,
        checkpoint_ms=checkpoint,
        lost_work_ms=repeated,
        provisioning_ms=trained_from - wanted,
        migration_ms=tail if replaced else 0,
        idle_ms=wanted - start + rest - unreported + (0 if replaced else tail),
        unreported_ms=unreported,
    )


def _market_ms(wall_s: float, factor: float) -> int:
    return round(max(wall_s, 0.0) * factor * 1000)
