"""What `decide` is told of each job, and the limits within which it may move them. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.market import Location
from orchestrator.model import Job, Reason


@dataclass(frozen=True, slots=True)
class Demand:
    """A job with what is known of its progress.

    `total_steps` is None while the trainer has not yet said how many steps its epochs are. `done_steps` are safe in a
    checkpoint or in a living run. `spent_nano_usd` counts against the budget. `checkpoint_s` is how long one save takes
    (market seconds), `handover_s` for how long training stands still when the job moves (None: one save, one restore);
    `checkpoint_at` where the newest checkpoint lies when the job is not running. `setup_s` is what setting its
    environment up adds to the start of each machine, good to a factor of two. `excluded` are the ids of offers that
    failed this job lately and are not to be used now, each with the reason.
    """

    job: Job
    total_steps: int | None
    done_steps: int = 0
    spent_nano_usd: int = 0
    checkpoint_bytes: int = 0
    checkpoint_s: float = 30.0
    handover_s: float | None = None
    checkpoint_at: Location | None = None
    setup_s: float = 0.0
    excluded: tuple[tuple[str, str], ...] = ()

    @property
    def gap_s(self) -> float:
        """Market seconds without training when it moves, besides what moving its bytes takes."""
        return 2 * self.checkpoint_s if self.handover_s is None else self.handover_s

    @property
    def started(self) -> bool:
        """It has done or cost something already."""
        return self.done_steps > 0 or self.spent_nano_usd > 0


@dataclass(frozen=True, slots=True)
class Underway:
    """A voluntary move that has begun, to the offer `to`, for `reason`.

    What it has cost already is paid, whatever becomes of it: `ready`, the machine there has started; `restored`, it
    holds the checkpoint, too.
    """

    to: str
    reason: Reason
    ready: bool = False
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """Where a job runs now. Instants in epoch milliseconds of market time.

    `last_migration_ms` and `migrations_today` count voluntary moves. `migrating`: a move is under way, whatever
    `offer_id` says, and is left alone; with `move` that one is to be weighed again. `leaving`: its machine has its
    notice, so that staying is no option. `came_by` is why it is there.
    """

    offer_id: str
    since_ms: int
    last_migration_ms: int | None = None
    migrations_today: int = 0
    migrating: bool = False
    leaving: bool = False
    came_by: Reason = "first placement"
    move: Underway | None = None


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits on voluntary moves and on stale knowledge. A job that is about to break a promise may move at once.

    `move_margin`: a move must bring in its own cost so many times over ("balanced consolidation", Karpenter).
    `min_gain`: and at least this share of what staying would take, for prices wobble: list prices of spot machines step
    by 5 % in the median and by up to 22 % at the 90th percentile (GCP, 2023 to 2026).
    """

    min_dwell_s: float = 3_600.0
    max_migrations_per_day: int = 4
    move_margin: float = 2.0
    min_gain: float = 0.10
    max_price_age_s: float = 86_400.0
