"""Plan: what `decide` proposes, immutable and explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["place", "stay", "move", "wait", "none"]
Evidence = Literal[
    "none",  # only the ratios between machines can be told
    "expected",  # its user says so
    "profile",  # a profile of its step
    "table",  # an imported figure of its name
    "measured",  # it ran, or one of the same program and settings did
]
"""What the speed of a job is known from, the best there is."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 90 % interval (5th to 95th percentile) and where it comes from."""

    value: float
    low: float
    high: float
    provenance: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """An offer that was looked at. `reason` is the ONE binding reason why it was not chosen (empty: it was).

    Without evidence of the job's speed only `relative_speed` is known: how many machines of the kind that its
    provenance names this one is worth.
    """

    offer_id: str
    nano_usd_per_hour: int
    price_age_s: float
    steps_per_s: float | None  # per market second
    nano_usd_per_step: float | None
    cost_nano_usd: int | None  # expected, to finish
    cost_low_nano_usd: int | None
    cost_high_nano_usd: int | None
    duration_s: float | None  # expected, to finish, market seconds
    feasible: bool
    reason: str
    duration_low_s: float | None = None  # 5th and 95th percentile
    duration_high_s: float | None = None
    relative_speed: Estimate | None = None


@dataclass(frozen=True, slots=True)
class CostParts:
    """What an expected cost consists of; the parts add up to it exactly.

    `compute` is training itself, `checkpoint` the time that saving takes, `preemption` restarts and work done again,
    `start` what is billed before it trains, `minimum` what a provider bills beyond the end of a very short job.
    """

    compute_nano_usd: int
    checkpoint_nano_usd: int
    preemption_nano_usd: int
    start_nano_usd: int
    egress_nano_usd: int
    storage_nano_usd: int
    minimum_nano_usd: int


@dataclass(frozen=True, slots=True)
class Pick:
    """What an objective would take, and what that is expected to cost and take; `offer_id` None: nothing fits it."""

    objective: str
    offer_id: str | None
    cost_nano_usd: int | None
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """How many offers one constraint rules out."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Some minutes on another kind of hardware, to know before a long job commits itself.

    It `cost`s that much all in all and is expected to save `saving` beyond it. `offer_id` None: no probe, for `reason`.
    """

    offer_id: str | None
    minutes: float
    cost_nano_usd: int
    saving_nano_usd: int
    reason: str


@dataclass(frozen=True, slots=True)
class Placement:
    """What to do with one job, and why.

    `alternatives` is ranked: the chosen one first, then feasible ones by objective, then the infeasible. A small market
    is told offer by offer; of a large one the best and the nearest misses are, `considered` counts all offers and
    `rejected` those that a constraint rules out.
    `throughput` is None where there is no evidence of the job's speed (`evidence` says of what kind it is), and with it
    all that follows from it: cost, finish, what would change the choice.
    `baseline` is the cheapest on-demand offer that meets the constraints (what one would pay without us).
    `would_move_below` is the $/h of the best other offer under which this job would be placed or move there (None:
    never); `kept_up_to` the $/h of the chosen one up to which it is chosen (None: at any price, or there is no other).
    `probe` is what the probe rule said, where it was asked. If its offer is the chosen one, the decision is to be taken
    again with what it shows; another offer is to be tried once the job was measured on the chosen one. `again_at_ms`:
    decide again then, whatever happens. `chance` is the probability of keeping deadline and budget where no offer does
    so safely (at the 95th percentile); None where one does, or nothing was promised.
    """

    job_id: str
    action: Action
    offer_id: str | None
    reason: str
    cost_nano_usd: int | None
    finish_at_ms: int | None
    saving_nano_usd: int
    alternatives: tuple[Alternative, ...]
    baseline: Alternative | None
    throughput: Estimate | None
    would_move_below_nano_usd_per_hour: int | None = None
    kept_up_to_nano_usd_per_hour: int | None = None
    parts: CostParts | None = None
    expected_losses: float | None = None
    hazard_source: str = ""
    considered: int = 0
    rejected: tuple[Rejection, ...] = ()
    probe: Probe | None = None
    again_at_ms: int | None = None
    chance: float | None = None
    evidence: Evidence = "none"


@dataclass(frozen=True, slots=True)
class Plan:
    """One placement per job. `id` is a digest of everything in it: equal inputs give the equal plan."""

    id: str
    at_ms: int
    market_digest: str
    simulated: bool
    placements: tuple[Placement, ...]

    def placement(self, job_id: str) -> Placement:
        """The placement of a job. Raises KeyError."""
        for placement in self.placements:
            if placement.job_id == job_id:
                return placement
        raise KeyError(job_id)
