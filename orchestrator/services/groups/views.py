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
    """The `share` of its time that a job spends on machines of this offer."""

    offer_id: str
    share: float


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of a joint plan. If its parts add up to less than 1, it waits for the rest of the time. It starts at
    `start_at_ms`, when the last of its predecessors ends; `late`: because of this it may miss its deadline.
    `budget_nano_usd` is its own budget; a budget below `least_budget_nano_usd` is too small, and
    `enough_budget_nano_usd` is enough with a probability of 95 %, including starts and interruptions."""

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
    """What `more` units of a quota (one machine) would be worth: all jobs together would cost `saving_nano_usd` less,
    the last job would end `sooner_s` earlier, and the objective would improve by `value`, in its unit. `owned`: this is
    not an account's limit but the number of machines on `scope`."""

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
    """A job on a spot machine whose loss would make it late. If there is room, it is placed elsewhere, at this expected
    cost."""

    name: str
    cost_nano_usd: int


@dataclass(frozen=True, slots=True)
class Without:
    """The plan with the actual quotas, for comparison with that of a `--what-if`: its cost and the end of its last job;
    or why there is none."""

    cost_nano_usd: int | None
    finish_at_ms: int | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class GroupPlanView:
    """The joint plan of a group. `gap`: the largest possible distance of its objective from the optimum, as a fraction.
    `enough_budget_nano_usd`: the smallest budget of the group that is enough for each job.

    `stopped_after_s`: the seconds after which the solver was stopped before it had found the best plan; None: it was
    not stopped. Submitting needs `missing_secrets`, which are missing or empty in the environment of the planner. The
    budgets of `short_projects` are too small for the jobs, and `full_limits` have no room for the jobs that could start
    at once. `cautions` are about the programs of the jobs. `risk`: the jobs for which `submit --yes` needs
    `--accept-risk`, as text; not computed for a `--what-if`.
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
    cautions: tuple[str, ...] = ()
    elsewhere: tuple[PlacedElsewhere, ...] = ()
    risk: str = ""


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
