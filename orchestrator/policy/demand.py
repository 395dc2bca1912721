"""The inputs of `decide`: what is known about each job, where it runs, and the limits on moves. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Location
from orchestrator.model import Job, Reason
from providers.offer import provider_of

Floats = NDArray[np.float64]

TIME_TOLERANCE = 0.03
"""The objective `fastest` treats finishes as equally early if they are later than the earliest by at most this share.
The last percent of speed often costs several times as much, and is less than the uncertainty of a measured speed."""


@dataclass(frozen=True, slots=True)
class RentLimits:
    """What a job may rent at once, regardless of other rented machines: the most machines, and the most that these may
    cost together (nano-USD per hour). `machines_by` and `rate_by` name the settings that define the two limits."""

    machines: float = inf
    nano_usd_per_hour: float = inf
    machines_by: str = ""
    rate_by: str = ""

    def allow(self, machines: int, nano_usd_per_hour: float) -> bool:
        """Whether a job may have this many machines if together they cost `nano_usd_per_hour`."""
        return machines <= self.machines and nano_usd_per_hour <= self.nano_usd_per_hour

    def passed_by(self, machines: int) -> str:
        """The name of the setting that forbids an offer, if that number of machines of it is not allowed."""
        return self.machines_by if machines > self.machines else self.rate_by


NO_RENT_LIMITS = RentLimits()


@dataclass(frozen=True, slots=True)
class Reserve:
    """How long the machines of a job with a budget must still be paid for when it is paused, in market seconds:
    `release_s` until they are no longer billed, and before that `stop_s` and two steps to save a checkpoint, or, if the
    budget is large, 1/SHARE of it, but no more than `longest_stop_s`. The longest of its steps so far took `step_s`. A
    spot price may double meanwhile, and may have doubled since the last poll, up to `unheard_s` ago."""

    release_s: float = 0.0
    stop_s: float = 0.0
    longest_stop_s: float = 0.0
    step_s: float = 0.0
    unheard_s: float = 0.0

    SHARE: ClassVar[int] = 100

    def with_reserve(self, cost: Floats, price_s: Floats, step_s: Floats, spot: NDArray[np.bool_]) -> Floats:
        """The budgets that pay for `cost` and for the reserve at these prices per second, where a step takes
        `step_s`."""
        ended = cost + (self.release_s + np.where(spot, self.unheard_s, 0.0)) * price_s
        stop_s = self.stop_s + 2 * np.maximum(self.step_s, step_s)
        stop = np.maximum(2 * stop_s * price_s, ended / (self.SHARE - 1))
        paid: Floats = ended + np.minimum(stop, 2 * self.longest_stop_s * price_s)
        return paid


NO_RESERVE = Reserve()


@dataclass(frozen=True, slots=True)
class Demand:
    """A job and its progress. All times are in seconds of market time.

    - `total_steps`: None until the trainer has reported the number of steps in its epochs.
    - `done_steps`: the steps that are saved in a checkpoint or held by a running machine.
    - `spent_nano_usd`: what counts against the budget so far.
    - `checkpoint_s`: the time that one save takes.
    - `handover_s`: the time without training during a move (None: one save and one restore).
    - `checkpoint_at`: where the newest checkpoint was saved, if the job is not running.
    - `store_root`: the folder or URL below which checkpoints are kept if the job file names no other.
    - `bucket_region`: the region of the bucket that keeps them; "" if it is not known, None if the bucket is in no
      cloud (a store with an address of its own).
    - `setup_s`: the time that setting up the job's environment adds to each machine's start, within a factor of two.
    - `idle_s`: the time that the job has not been running, since it last trained, was submitted or was resumed; 0 while
      it runs.
    - `excluded`: (offer id, reason) of offers that recently failed this job and must not be used now.
    - `reserved`: offers reserved for other jobs, because it is their turn. The job may stay on an offer where it
      already runs.
    - `priority`: among competing jobs, those with a higher priority come first.
    - `project_weight`: the weight of the job's project when jobs share the time of machines; None if no project has a
      weight, so that each job counts with its own.
    - `rent`: the limits on what the job may rent.
    - `hurries`: the deadline is not the job's own, but the one that later jobs need it to meet.
    - `own_due_ms`: in that case, the job's own deadline (epoch ms); None if it has none.
    - `reserve`: what its budget must cover in addition to the work.
    - `typed_name`: the name or id to use for the job in commands; "": its name.
    """

    job: Job
    total_steps: int | None
    done_steps: int = 0
    spent_nano_usd: int = 0
    checkpoint_bytes: int = 0
    checkpoint_s: float = 30.0
    handover_s: float | None = None
    checkpoint_at: Location | None = None
    store_root: str = ""
    bucket_region: str | None = ""
    setup_s: float = 0.0
    idle_s: float = 0.0
    excluded: tuple[tuple[str, str], ...] = ()
    reserved: tuple[str, ...] = ()
    priority: int = 0
    project_weight: float | None = None
    rent: RentLimits = NO_RENT_LIMITS
    hurries: bool = False
    own_due_ms: int | None = None
    reserve: Reserve = NO_RESERVE
    typed_name: str = ""

    @property
    def gap_s(self) -> float:
        """Market seconds without training during a move, not counting the transfer of the checkpoint."""
        return 2 * self.checkpoint_s if self.handover_s is None else self.handover_s

    def home(self, offer_id: str | None) -> str | None:
        """The provider of `offer_id`, the offer where the job runs, or else of its newest checkpoint; None if there is
        neither."""
        if offer_id is not None:
            return provider_of(offer_id)
        return None if self.checkpoint_at is None else self.checkpoint_at[0]

    @property
    def nodes(self) -> int:
        """How many machines the job needs at once."""
        return self.job.spec.resources.nodes

    @property
    def started(self) -> bool:
        """Whether the job has already done steps or cost money."""
        return self.done_steps > 0 or self.spent_nano_usd > 0


@dataclass(frozen=True, slots=True)
class Underway:
    """A voluntary move to the offer `to` that has begun, for `reason`.

    `ready`: the new machine has started; `restored`: it also holds the checkpoint. Aborting the move does not recover
    the cost of these steps.
    """

    to: str
    reason: Reason
    ready: bool = False
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """Where a job runs now. Times are epoch milliseconds of market time.

    `last_migration_ms` and `migrations_today` count voluntary moves only. `migrating`: the job is being moved, and
    `decide` leaves it alone. `move`: a move that has begun, which `decide` judges again. `leaving`: the machine was
    given notice, so the job cannot stay. `came_by` is why the job is on this offer.
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
    """Limits on voluntary moves and on stale prices. A job that is about to miss a deadline or budget may move at once.

    A move must meet three conditions. It must gain `move_margin` times its own cost ("balanced consolidation",
    Karpenter). It must gain at least the share `min_gain` of what staying would cost, because prices fluctuate: list
    prices of spot machines change by 5 % in the median and by up to 22 % at the 90th percentile (GCP, 2023 to 2026).
    And it must gain `least_saving_nano_usd` beyond its own cost, because a smaller gain does not justify interrupting a
    job.
    """

    min_dwell_s: float = 3_600.0
    max_migrations_per_day: int = 4
    move_margin: float = 2.0
    min_gain: float = 0.10
    least_saving_nano_usd: int = 10_000_000  # one cent
    max_price_age_s: float = 86_400.0
