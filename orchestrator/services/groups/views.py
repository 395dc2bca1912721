"""Views of groups. Money is nano-USD, times are epoch ms of market time, durations market seconds; plans are
estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.model import GroupPolicy
from orchestrator.services.shortfalls import FullLimit, ProjectMoney
from orchestrator.services.views import JobView


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """The part `share` of a job's time is spent on machines of this offer."""

    offer_id: str
    share: float


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of a joint plan. Parts that add up to less than 1: it waits for the rest of the time. It starts when the
    last of its predecessors ends, at `start_at_ms`; `late`: so it may miss its deadline. `budget_nano_usd` is its own
    budget; one below `least_budget_nano_usd` cannot pay for it, and `enough_budget_nano_usd` does so with 95 %
    certainty, starts and interruptions included."""

    name: str
    weight: float
    after: tuple[str, ...]
    parts: tuple[PlannedPart, ...]
    steps_per_s: float
    cost_nano_usd: int
    start_at_ms: int | None
    finish_at_ms: int | None
    deadline_at_ms: int | None
    late: bool
    budget_nano_usd: int | None
    least_budget_nano_usd: int
    enough_budget_nano_usd: int


@dataclass(frozen=True, slots=True)
class UnitWorth:
    """What `more` units of a quota, which is one machine, would be worth: all jobs together would cost so much less
    (nano-USD), the last one would end `sooner_s` earlier, and the objective would be better by `value`, in its unit.
    `owned`: not an account's limit, but all machines that there are on `scope`."""

    key: str  # as in --what-if
    quota: str
    cloud: str
    scope: str
    unit: str
    owned: bool
    limit: int
    used: int
    more: int
    saving_nano_usd: int
    sooner_s: float
    value: float


@dataclass(frozen=True, slots=True)
class PlacedElsewhere:
    """A job on a spot machine whose loss would make it late. Where there is room, it is placed elsewhere, and is
    expected to cost so much there."""

    name: str
    cost_nano_usd: int


@dataclass(frozen=True, slots=True)
class Without:
    """The plan with the quotas as they are, beside that of a `--what-if`: its cost and the end of its last job; or why
    there is none."""

    cost_nano_usd: int | None
    finish_at_ms: int | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class GroupPlanView:
    """The joint plan of a group. `gap`: how far, relatively, its objective can at most be from the best.
    `enough_budget_nano_usd`: the smallest budget of the group with which each job has enough.

    `stopped_after_s`: after so many seconds the solver was stopped, before it had the best plan; None: it was not.
    Submitting needs `missing_secrets`, which are missing or empty in the environment of the planner. The budgets of
    `short_projects` do not pay for the jobs, and `full_limits` have no room for those that can start at once.
    """

    kind: ClassVar[str] = "group-plan"

    at_ms: int
    group: str
    policy: GroupPolicy
    project: str
    simulated: bool
    price_age_s: float | None
    jobs: tuple[PlannedJob, ...]
    cost_nano_usd: int
    finish_at_ms: int | None
    budget_nano_usd: int | None
    enough_budget_nano_usd: int
    objective: float
    bound: float
    gap: float
    worths: tuple[UnitWorth, ...]
    supposed: tuple[str, ...] = ()  # the quotas that --what-if changed, such as "quota.aws.us-east-1.p5=384"
    without: Without | None = None
    stopped_after_s: float | None = None
    missing_secrets: tuple[str, ...] = ()
    short_projects: tuple[ProjectMoney, ...] = ()
    full_limits: tuple[FullLimit, ...] = ()
    elsewhere: tuple[PlacedElsewhere, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupView:
    """A submitted group and its jobs."""

    kind: ClassVar[str] = "group"

    id: str
    name: str
    policy: GroupPolicy
    project: str
    owner: str
    submitted_at_ms: int
    budget_nano_usd: int | None
    deadline_at_ms: int | None
    paid_nano_usd: int
    jobs: tuple[JobView, ...]
