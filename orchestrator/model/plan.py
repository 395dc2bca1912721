"""Plan: what `decide` proposes for each job, with its reasons. Immutable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["place", "stay", "move", "wait", "none"]
ACTION_WORDS = {"place": "start", "stay": "stay", "move": "move", "wait": "wait", "none": "no change"}
ACTION_WORDS_ON = {"place": "start on", "stay": "stay on", "move": "move to"}
"""How people read each action; the latter with the name of an offer behind it."""
Evidence = Literal[
    "none",  # only ratios between machines are known
    "expected",  # stated by its user
    "profile",  # a profile of its step
    "table",  # an imported figure of its name
    "measured",  # it ran, or a job with the same program and settings did
]
"""The best evidence of a job's speed."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 90 % interval (5th to 95th percentile) and its source."""

    value: float
    low: float
    high: float
    provenance: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """An offer that was considered. `reason` is the ONE binding reason why it was not chosen (empty if it was).

    Without evidence of the job's speed, only `relative_speed` is known: to how many machines of the kind named in its
    provenance this one is equivalent.
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
    """The parts of an expected cost, which add up to it exactly.

    `compute` is training itself, `checkpoint` the time for saving, `preemption` restarts and repeated work, `start`
    what is billed before training, `minimum` what a provider bills beyond the end of a very short job.
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
    """What an objective would choose, with its expected cost and duration; `offer_id` is None if no offer fits."""

    objective: str
    offer_id: str | None
    cost_nano_usd: int | None
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """How many offers one constraint rejects."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A short run on another kind of hardware, to measure it before a long job commits.

    Its total cost is `cost_nano_usd`, and it is expected to save `saving_nano_usd` beyond that. `offer_id` is None if
    there is no probe, for `reason`.
    """

    offer_id: str | None
    minutes: float
    cost_nano_usd: int
    saving_nano_usd: int
    reason: str


@dataclass(frozen=True, slots=True)
class TracedOption:
    """Something that a job could do now: "start", "start and return" to the offer after the first loss, or "wait"
    for it (expected in `wait_s` market seconds). `cost_nano_usd` and `duration_s` to finish are expected values
    (None: not known). `value` is what was compared: a multiple of the best option's; or, for a job that runs, of the
    most at which a move pays ("stay" is 1)."""

    action: str
    offer_id: str | None
    wait_s: float
    cost_nano_usd: int | None
    duration_s: float | None
    value: float


@dataclass(frozen=True, slots=True)
class Trace:
    """How the policy came to a decision: the `rule` by which it compared, the `facts` that counted (name and text) and
    the options that it compared. The first is the decision; the others follow by rank. Their costs are those that were
    compared; those of the plan also count what follows after losses."""

    rule: str
    facts: tuple[tuple[str, str], ...]
    options: tuple[TracedOption, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """What to do with one job, and why.

    `alternatives` is ranked: the chosen offer, then feasible ones by objective, then infeasible ones. It has the best
    and those closest to a fit; every offer of a small market if the plan was made for a person to read. `considered`
    counts all offers and `rejected` those ruled out by each constraint. `throughput` is None without evidence of the
    job's speed (`evidence` is its kind), and so is everything that follows from it: cost, finish, what would change the
    choice. `baseline` is the cheapest on-demand offer that meets the constraints (what one would pay without
    Tradewind). `would_move_below...` is the price of the best other offer below which the job would be placed there or
    move there (None: never); `kept_up_to...` is the price of the chosen offer up to which it stays the choice (None: at
    any price, or there is no other offer). `probe` is the answer of the probe rule, if it was asked. If its offer is
    the chosen one, the decision is made again after the measurement; another offer is to be probed once the job is
    measured on the chosen one. `again_at_ms`: decide again at that market time in any case (a probe or a back-off
    ends). `chance` is the probability of keeping deadline and budget if no offer does so safely (at the 95th
    percentile); None if one does, or there are no limits. `awaited` is the offer for whose capacity the job waits, with
    its cost and time from now on, the wait included. `lacks_money`: a job that runs nowhere waits, and only a larger
    budget can end that. `also` are further offers that would do as well, the best first, so that one launch may ask for
    all of them.
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
    awaited: Alternative | None = None
    lacks_money: bool = False
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One placement per job. `id` is a digest of all its content: equal inputs give equal plans."""

    id: str
    at_ms: int
    market_digest: str
    simulated: bool
    placements: tuple[Placement, ...]

    def placement(self, job_id: str) -> Placement:
        """The placement of a job. Raises KeyError if the plan has none."""
        for placement in self.placements:
            if placement.job_id == job_id:
                return placement
        raise KeyError(job_id)
