"""TimeBreakdown: assigns every millisecond that a machine was billed to exactly one of six categories.

    billed_from      training_from                                training_to            billed_to
        | provisioning   | useful, lost work, checkpoint; rest: idle   | migration or idle  |

All values are integers and their sum is exact. What a trainer measured in wall seconds is converted by the clock's
factor and limited to the time available.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.model import Run


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Milliseconds of market time.

    `lost_work_ms` is time spent on steps that an earlier run had done and lost. `migration_ms` is what a run was billed
    while being replaced, or for an aborted takeover. `idle_ms` is the rest: waiting as a standby, being quiesced,
    stalls, and the time between the last step and the end of billing.
    """

    useful_ms: int = 0
    checkpoint_ms: int = 0
    lost_work_ms: int = 0
    provisioning_ms: int = 0
    migration_ms: int = 0
    idle_ms: int = 0

    @property
    def total_ms(self) -> int:
        """The billed time: the sum of all six."""
        return (
            self.useful_ms
            + self.checkpoint_ms
            + self.lost_work_ms
            + self.provisioning_ms
            + self.migration_ms
            + self.idle_ms
        )

    def __add__(self, other: TimeBreakdown) -> TimeBreakdown:
        return TimeBreakdown(
            self.useful_ms + other.useful_ms,
            self.checkpoint_ms + other.checkpoint_ms,
            self.lost_work_ms + other.lost_work_ms,
            self.provisioning_ms + other.provisioning_ms,
            self.migration_ms + other.migration_ms,
            self.idle_ms + other.idle_ms,
        )


def time_breakdown(run: Run, upto_ms: int, *, factor: float = 1.0) -> TimeBreakdown:
    """The breakdown of the time billed to `run` up to `upto_ms`, over all its machines. `factor`: market seconds per
    wall second (Clock.factor)."""
    if not run.members:
        return of_one_machine(run, upto_ms, factor=factor)
    alone = (
        replace(run, members=(), billed_from_ms=m.billed_from_ms, billed_to_ms=m.billed_to_ms) for m in run.members
    )
    return sum((of_one_machine(each, upto_ms, factor=factor) for each in alone), TimeBreakdown())


def of_one_machine(run: Run, upto_ms: int, *, factor: float = 1.0) -> TimeBreakdown:
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
    return TimeBreakdown(
        useful_ms=worked - repeated,
        checkpoint_ms=checkpoint,
        lost_work_ms=repeated,
        provisioning_ms=trained_from - wanted,
        migration_ms=tail if replaced else 0,
        idle_ms=wanted - start + left - checkpoint - worked + (0 if replaced else tail),
    )


def _market_ms(wall_s: float, factor: float) -> int:
    return round(max(wall_s, 0.0) * factor * 1000)
