"""Views: frozen dataclasses that the services return and `orchestrator.Client` passes on.

Each top-level view has a `kind`; `documents.to_json(view)` gives {"schema": "tradewind/<kind>/v1", ...}. Removing a
field or changing its meaning raises the version. Money is in integer nano-USD, times are in epoch ms of market time,
durations are in market seconds (`_s`) or real seconds (`_wall_s`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from orchestrator.config import ShownSetting
from orchestrator.model import (
    TERMINAL,
    CostParts,
    Entry,
    Estimate,
    Event,
    Evidence,
    Job,
    JobForecast,
    JobState,
    Migration,
    Pick,
    Plan,
    Probe,
    Rejection,
    Run,
    Trace,
)
from orchestrator.services.control_plane.views import ControlPlaneView
from orchestrator.services.rentable import CouldEnable, Enabling, NotRentable, QuotaWorth
from orchestrator.services.shortfalls import FullLimit, ProjectMoney
from providers.bucket import Bucket
from providers.money import about_usd
from providers.network import Network
from providers.offer import short_zone

NOT_ASKED = "shown by queue, status and report"
"""`no_forecast` of a job for which no forecast was requested."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of running some steps of a job on the submitter's machine: wall seconds per step and the GPU memory
    needed; or, if `measured` is false, `why` there is none. `failed`: the program itself ended with an error."""

    measured: bool
    why: str = ""
    step_wall_s: float | None = None
    gpu_memory_bytes: int | None = None
    precision: str | None = None
    computes: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """The current state of one job. `offer_id` and `nano_usd_per_hour` are those of its current run. `loss` is the loss
    at `step`; None if no run reported that step. Without a `forecast`, `no_forecast` gives the reason. `objective` is
    the job's own, or the policy of its group, unless that is `cheapest`: then each job follows its own objective."""

    kind: ClassVar[str] = "job"

    id: str
    name: str
    project: str
    owner: str
    state: JobState
    objective: str
    submitted_at_ms: int
    finished_at_ms: int | None
    deadline_at_ms: int | None
    budget_nano_usd: int | None
    step: int
    total_steps: int | None
    loss: float | None
    offer_id: str | None
    nano_usd_per_hour: int | None
    paid_nano_usd: int  # as booked; a current run is booked every few minutes of market time
    runs: int
    migrations: int
    steps_repeated: int
    simulated: bool
    note: str  # the warnings, the latest decision or event, then pending requests, as text
    quarantine: str | None = None  # the error for which it is in quarantine until `resume`
    warnings: tuple[str, ...] = ()  # problems of its run, such as "stuck at step 12"
    trial: Trial | None = None  # only of a job that was just submitted, if its program was tried
    forecast: JobForecast | None = None
    no_forecast: str = NOT_ASKED
    group_id: str | None = None
    group: str | None = None  # its name
    requested: tuple[str, ...] = ()  # commands that no control plane has carried out yet, such as "cancel"
    late_s: float | None = None  # seconds after its deadline until it is expected to finish; None: not late, or unknown

    @property
    def lateness(self) -> str:
        """A sentence if it is expected to miss its deadline; else empty."""
        if self.late_s is None:
            return ""
        from orchestrator.formats.readable import span

        late = span(self.late_s)
        if self.forecast is None:
            return f"its deadline passed {late} ago"
        return f"expected to finish {late} after its deadline"

    @property
    def zone(self) -> str | None:
        """`provider/zone` of its current offer; None if it is not running."""
        return None if self.offer_id is None else short_zone(self.offer_id)

    @property
    def unreported(self) -> bool:
        """Whether it has finished without reporting any of the steps that its job file states."""
        return self.state == "finished" and self.step == 0 and bool(self.total_steps)

    @property
    def done(self) -> float | None:
        """The completed part of its work, from 0 to 1; None if unknown or `unreported`. 1 for all other finished jobs:
        the program may have ended early, or may not count steps."""
        if self.state == "finished":
            return None if self.unreported else 1.0
        return min(self.step / self.total_steps, 1.0) if self.total_steps else None

    @property
    def percent_done(self) -> str:
        """The completed part, such as `99%`, rounded down, so that 100% means complete; `0/500 (finished)` if it is
        `unreported`, "" if unknown."""
        if self.unreported:
            return f"0/{self.total_steps} (finished)"
        if self.state == "finished" or not self.total_steps:
            return "" if self.done is None else "100%"
        return f"{min(100 * self.step // self.total_steps, 100)}%"

    @property
    def to_go(self) -> str:
        """The forecast as text, or the reason why there is none; empty for a job that has ended."""
        if self.state in TERMINAL or self.no_forecast == NOT_ASKED:
            return ""
        if self.forecast is None:
            return self.no_forecast
        from orchestrator.formats.readable import span

        return f"{about_usd(self.forecast.cost_nano_usd)}, {span(self.forecast.duration_s)}"


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of jobs."""

    kind: ClassVar[str] = "jobs"

    at_ms: int
    jobs: tuple[JobView, ...]
    paid_nano_usd: int  # by the jobs in the list
    simulated: bool
    ended: int = 0  # number of ended jobs that are not in the list
    next_cursor: str | None = None  # of the next page; None: this is the last page


@dataclass(frozen=True, slots=True)
class StatusView:
    """One job in detail. `unbooked_nano_usd` is an estimate of its machines' costs that are not booked yet."""

    kind: ClassVar[str] = "status"

    at_ms: int
    job: JobView
    runs: tuple[Run, ...]
    migration: Migration | None  # the migration in progress
    events: tuple[Event, ...]  # newest last
    control_plane: ControlPlaneView
    unbooked_nano_usd: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of a plan. `role`: choose, stay, await (the job waits for its capacity), next, no (infeasible) or
    baseline (on-demand, without Tradewind)."""

    role: Literal["choose", "stay", "await", "next", "no", "baseline"]
    offer_id: str
    gpu: str
    spot: bool
    nano_usd_per_hour: int
    price_age_s: float
    nano_usd_per_step: float | None
    duration_s: float | None
    cost_nano_usd: int | None
    cost_low_nano_usd: int | None
    cost_high_nano_usd: int | None
    reason: str
    duration_low_s: float | None = None
    duration_high_s: float | None = None
    relative_speed: Estimate | None = None  # only without other data; relative to the machine in its provenance


@dataclass(frozen=True, slots=True)
class Standby:
    """The standby machine of `standby: warm`, and its cost until the job finishes."""

    offer_id: str
    nano_usd_per_hour: int
    cost_nano_usd: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The part of a plan about one job. `choices` are ranked; `count` is the number of offers considered.

    `front` are the offers for which no other is both cheaper and faster, `picks` the choice of each objective; both
    only for a job that is not submitted yet. `also` are offers as good as the chosen one, so that one launch may
    request any of them. `chance` is the probability of meeting deadline and budget; None if they are met at the 95th
    percentile, if there are none, or if it is unknown. `evidence` is the source of the speed; with "none" there is no
    speed, cost or finish time, only `relative_speed` and the price per hour of each choice. `trace` says how the
    decision was made, if requested. All prices and costs are for the `nodes` machines that the job needs at once.
    """

    job_id: str
    name: str
    objective: str
    deadline_at_ms: int | None
    budget_nano_usd: int | None
    action: str
    offer_id: str | None
    reason: str
    cost_nano_usd: int | None
    finish_at_ms: int | None
    saving_nano_usd: int
    steps_per_s: float | None
    throughput_source: str
    would_move_below_nano_usd_per_hour: int | None
    choices: tuple[Choice, ...]
    count: int
    standby: Standby | None = None
    parts: CostParts | None = None
    expected_losses: float | None = None
    hazard_source: str = ""
    kept_up_to_nano_usd_per_hour: int | None = None
    probe: Probe | None = None
    rejected: tuple[Rejection, ...] = ()
    front: tuple[Pick, ...] = ()
    picks: tuple[Pick, ...] = ()
    chance: float | None = None
    evidence: Evidence = "none"
    trace: Trace | None = None
    nodes: int = 1
    also: tuple[str, ...] = ()

    @property
    def planned(self) -> Choice | None:
        """The offer that is chosen or awaited; None if there is none."""
        return next((each for each in self.choices if each.role in ("choose", "stay", "await")), None)


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan to review. Its JSON is the saved plan document, from which `plan` and `new_jobs` are read back.

    `new_jobs` are not submitted yet; applying the plan submits them under these ids. With `anywhere` the plan includes
    catalogue offers of clouds that are `not_enabled`: it is for information and cannot be submitted or applied.
    Tradewind cannot rent at those in `no_provider`, because no provider with that name is installed; then
    `could_enable` says where it could. Enabled providers in `no_offers` have nothing to rent, or have not answered.
    Submitting needs `missing_secrets`, which are missing or empty in the environment of the planner. Jobs wait because
    the prices of `outdated` clouds are too old to plan with; `prices collect` can collect new ones. The budgets of
    `short_projects` are too small for their new jobs, which will wait or be paused. `full_limits` have no room for all
    new jobs at once: some of them wait until other jobs end. `cautions` are about the programs of new jobs.
    """

    kind: ClassVar[str] = "plan"

    id: str
    at_ms: int
    price_age_s: float | None  # None: a provider has never responded
    simulated: bool
    decisions: tuple[Decision, ...]
    plan: Plan
    new_jobs: tuple[Job, ...]
    anywhere: bool = False
    not_enabled: tuple[str, ...] = ()
    no_provider: tuple[str, ...] = ()
    could_enable: CouldEnable | None = None
    enabling: tuple[Enabling, ...] = ()
    saving_unknown: str = ""
    not_rentable: tuple[NotRentable, ...] = ()
    no_offers: tuple[str, ...] = ()
    quotas: tuple[QuotaWorth, ...] = ()
    missing_secrets: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    short_projects: tuple[ProjectMoney, ...] = ()
    full_limits: tuple[FullLimit, ...] = ()
    cautions: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """True if applying the plan would start or move a job."""
        return not self.anywhere and any(decision.action in ("place", "move") for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class CodeView:
    """The code that a submission uploads. `secret_like` are files that may be secrets; `concern` says why the upload
    must be confirmed; None if it need not be."""

    kind: ClassVar[str] = "code"

    job: str
    folder: str
    files: int
    size_bytes: int
    secret_like: tuple[str, ...]
    concern: str | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted request. `control_plane` is False if none runs; the request is then executed once one does."""

    kind: ClassVar[str] = "accepted"

    command: str
    job_ids: tuple[str, ...]
    message: str
    control_plane: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a run's log. `rank` is the process that wrote it; None for other output of a machine with several
    processes, such as that of its set-up. `machine` is the number of the machine in its run, from 0."""

    kind: ClassVar[str] = "log-line"

    run_id: str
    number: int  # number of the run within its job, from 1
    zone: str
    text: str
    rank: int | None = None
    machine: int = 0


@dataclass(frozen=True, slots=True)
class EventList:
    """A page of events. `next_cursor` is the cursor of the page of earlier events; None: this is the last page. `names`
    are the names of the jobs by id, if the events of all jobs were requested."""

    kind: ClassVar[str] = "events"

    events: tuple[Event, ...]
    next_cursor: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntryList:
    """A page of ledger entries in the order of writing. `next_cursor` is None on the last page."""

    kind: ClassVar[str] = "ledger-entries"

    entries: tuple[Entry, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of a migration: its start and duration (None: not finished yet)."""

    step: str
    at_ms: int
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for the current state of a job or migration: `decisions` of plans, `steps` and earlier `history`."""

    kind: ClassVar[str] = "explanation"

    subject: str
    headline: str
    simulated: bool
    job: JobView | None
    plan_id: str | None
    planned_at_ms: int | None
    decisions: tuple[Decision, ...]
    migration: Migration | None
    steps: tuple[StepTime, ...]
    history: tuple[Event, ...]
    not_rentable: tuple[NotRentable, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A fetched file; `path` is relative to the folder."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Fetched outputs of a job. `missing` are outputs of the job file that do not exist. `aside` lists files that can
    be fetched by their paths: several machines wrote a file with the same name, and the file of the machine with the
    lowest number was fetched."""

    kind: ClassVar[str] = "fetched"

    job_id: str
    folder: str
    files: tuple[FetchedFile, ...]
    missing: tuple[str, ...]
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One check of `doctor`; `fix` is empty if there is nothing to do."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All checks of `doctor`."""

    kind: ClassVar[str] = "doctor"

    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        """True if a check failed."""
        return any(check.state == "fail" for check in self.checks)


@dataclass(frozen=True, slots=True)
class CloudPolicy:
    """The minimal policy for a cloud, in the format of the cloud's tools; `apply` is the command that creates it."""

    kind: ClassVar[str] = "policy"

    cloud: str
    format: Literal["json", "yaml"]
    text: str
    apply: str


@dataclass(frozen=True, slots=True)
class NetworkList:
    """What clouds have for this installation: networks by region, and the bucket of `store_root` if it belongs to the
    cloud."""

    kind: ClassVar[str] = "networks"

    networks: tuple[Network, ...]
    buckets: tuple[Bucket, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingList:
    """All current settings."""

    kind: ClassVar[str] = "config"

    settings: tuple[ShownSetting, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """Versions of Tradewind, Python and the platform."""

    kind: ClassVar[str] = "version"

    version: str
    python: str
    platform: str


def label_of(labels: Mapping[str, str]) -> str:
    """Labels as `a=1,b=2`."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
