"""What `decide` knows of each job, and the limits on moves. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from orchestrator.market import Location
from orchestrator.model import Job, Reason
from providers.offer import provider_of

TIME_TOLERANCE = 0.03
"""`fastest` counts finishes up to this share later than the earliest as equally early: the last percent of speed often
costs several times as much, and is less than the uncertainty of a measured speed."""


@dataclass(frozen=True, slots=True)
class RentLimits:
    """The most machines that a job may ever have at once, and the most that they may cost together in nano-USD per
    hour, whatever else is rented. `machines_by` and `rate_by` are the settings that say so."""

    machines: float = inf
    nano_usd_per_hour: float = inf
    machines_by: str = ""
    rate_by: str = ""

    def allow(self, machines: int, nano_usd_per_hour: float) -> bool:
        """Whether a job may have that many machines at this price of all together."""
        return machines <= self.machines and nano_usd_per_hour <= self.nano_usd_per_hour

    def passed_by(self, machines: int) -> str:
        """The setting that an offer passes which is not allowed for that many machines."""
        return self.machines_by if machines > self.machines else self.rate_by


NO_RENT_LIMITS = RentLimits()


@dataclass(frozen=True, slots=True)
class Demand:
    """A job and its progress.

    `total_steps` is None until the trainer has reported how many steps its epochs are. `done_steps` are saved in a
    checkpoint or held by a living run. `spent_nano_usd` counts against the budget. `checkpoint_s` is the time of one
    save (market seconds), `handover_s` the time without training during a move (None: one save and one restore);
    `checkpoint_at` is where the newest checkpoint was saved if the job is not running; `store_root` is the folder or
    URL below which checkpoints are kept if the job file names no other; `bucket_region` is the region of the bucket
    that keeps them, "" if it is not known, None if it is in no cloud (a store with an address of its own). `setup_s` is
    the time that setting up its environment adds to each machine's start, within a factor of two. `idle_s` is for how
    long (market seconds) it has run nowhere: since it last trained or was submitted or resumed; 0 while it runs.
    `excluded` are (offer id, reason) of offers that failed this job lately and must not be used now; `reserved` are
    the offers that other jobs have now, in their turns. The job may stay on one where it runs. `priority`: who competes
    with jobs of a lower one comes first. `project_weight`: the part of its project of the time of machines that jobs
    share; None where no project has one, and each job counts by its own weight. `rent`: what its machines may be and
    cost at most.
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

    @property
    def gap_s(self) -> float:
        """Market seconds without training during a move, not counting the transfer of its checkpoint."""
        return 2 * self.checkpoint_s if self.handover_s is None else self.handover_s

    def home(self, offer_id: str | None) -> str | None:
        """The provider of `offer_id`, where the job runs, or where its newest checkpoint is; None if neither."""
        if offer_id is not None:
            return provider_of(offer_id)
        return None if self.checkpoint_at is None else self.checkpoint_at[0]

    @property
    def nodes(self) -> int:
        """How many machines the job needs at once."""
        return self.job.spec.resources.nodes

    @property
    def started(self) -> bool:
        """Whether it has done steps or cost money already."""
        return self.done_steps > 0 or self.spent_nano_usd > 0


@dataclass(frozen=True, slots=True)
class Underway:
    """A voluntary move to the offer `to` that has begun, for `reason`.

    `ready`: the machine there has started; `restored`: it also holds the checkpoint. What these steps cost is spent
    either way.
    """

    to: str
    reason: Reason
    ready: bool = False
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """Where a job runs now. Times are epoch milliseconds of market time.

    `last_migration_ms` and `migrations_today` count voluntary moves. `migrating`: the job is being moved and is left
    alone. With `move`, that move is judged again. `leaving`: the machine was given notice, so the job cannot stay.
    `came_by` is why the job is there.
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

    `move_margin`: a move must gain this many times its own cost ("balanced consolidation", Karpenter). `min_gain`: and
    at least this share of what staying would cost, because prices fluctuate: list prices of spot machines change by 5 %
    in the median and by up to 22 % at the 90th percentile (GCP, 2023 to 2026). `least_saving_nano_usd`: and at least
    this amount beyond its own cost: for less, a job is not worth disturbing.
    """

    min_dwell_s: float = 3_600.0
    max_migrations_per_day: int = 4
    move_margin: float = 2.0
    min_gain: float = 0.10
    least_saving_nano_usd: int = 10_000_000  # one cent
    max_price_age_s: float = 86_400.0
