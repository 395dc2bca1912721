"""Plan: the proposal of `decide` for each job, with its reasons. Immutable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["place", "stay", "move", "wait", "none"]
ACTION_WORDS = {"place": "start", "stay": "stay", "move": "move", "wait": "wait", "none": "no change"}
ACTION_WORDS_ON = {"place": "start on", "stay": "stay on", "move": "move to"}
"""How people read each action; the latter with the name of an offer behind it."""
Evidence = Literal[
    "none",  # only the ratios between machines are known
    "expected",  # stated by its user
    "profile",  # a profile of its step
    "table",  # an imported value for its name
    "measured",  # the job, or a job with the same program and settings, has run
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

    Without evidence of the job's speed, only `relative_speed` is known: how many machines of the kind named in its
    provenance are as fast as this one.
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

    `compute` is the training, `checkpoint` the time for saving, `preemption` the restarts and repeated work, `start`
    the bill before training begins, `minimum` the part of a provider's minimum charge beyond the end of a very short
    job.
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
    """The choice of an objective, with its expected cost and duration; `offer_id` is None if no offer is suitable."""

    objective: str
    offer_id: str | None
    cost_nano_usd: int | None
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """The number of offers that one constraint rejects."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A short run on another kind of hardware, to measure it before a long job settles on one.

    Its total cost is `cost_nano_usd`; the expected saving, after this cost, is `saving_nano_usd`. `offer_id` is None if
    there is no probe; `reason` says why.
    """

    offer_id: str | None
    minutes: float
    cost_nano_usd: int
    saving_nano_usd: int
    reason: str


@dataclass(frozen=True, slots=True)
class TracedOption:
    """A possible action of a job: "start", "start and return" to the offer after the first loss, or "wait" for the
    offer (expected in `wait_s` market seconds). `cost_nano_usd` and `duration_s` to finish are expected values (None:
    unknown). `value` is the compared number, as a multiple of the best option's; or, for a running job, of the highest
    value at which a move pays ("stay" is 1)."""

    action: str
    offer_id: str | None
    wait_s: float
    cost_nano_usd: int | None
    duration_s: float | None
    value: float


@dataclass(frozen=True, slots=True)
class Trace:
    """How the policy made a decision: the `rule` of the comparison, the `facts` that it used (name and text) and the
    options. The first option is the decision; the others follow by rank. Their costs are the compared ones; the plan's
    costs also count what happens after losses."""

    rule: str
    facts: tuple[tuple[str, str], ...]
    options: tuple[TracedOption, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """What to do with one job, and why.

    `alternatives` is ranked: the chosen offer, then feasible offers by objective, then infeasible ones. It contains the
    best offers and those closest to feasible; all offers of a small market if the plan was made for a person to read.
    `considered` counts all offers and `rejected` the offers that each constraint rules out. `throughput` is None
    without evidence of the job's speed (`evidence` is its kind), and so are all values that depend on it: cost, finish,
    and the prices that would change the choice. `baseline` is the cheapest on-demand offer that meets the constraints
    (the price without Tradewind). `would_move_below...` is a price of the best other offer: below it, the job would be
    placed there or move there (None: never). `kept_up_to...` is the price up to which the chosen offer stays the choice
    (None: at any price, or there is no other offer). `probe` is the result of the probe rule, if it was used. If the
    probe's offer is the chosen one, the decision is made again after the measurement; another offer is probed after the
    job is measured on the chosen one. `again_at_ms`: decide again at that market time in any case (a probe or a
    back-off ends). `chance` is the probability of meeting deadline and budget if no offer meets them safely (at the
    95th percentile); None if one does, or there are no limits. `awaited` is the offer for whose capacity the job waits,
    with its cost and time from now on, including the wait. `lacks_money`: a job without a machine waits, and only a
    larger budget can end the wait. `also` are other offers that are as good, the best first; one launch may request all
    of them.
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
