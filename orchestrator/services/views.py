"""What the services answer: frozen dataclasses, the arguments and results of `orchestrator.Client`.

Each top-level view has a `kind`; `documents.to_json(view)` gives {"schema": "tradewind/<kind>/v1", ...}. A change that
takes a field away or changes its meaning raises the version. Money is integer nano-USD, instants are epoch ms of market
time, durations are `_s` (market seconds) or `_wall_s` (real ones).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
)
from providers.money import about_usd
from providers.offer import location_of

NOT_ASKED = "shown by queue, status and report"
"""Why a job has no forecast where none was asked for."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What some steps on the submitter's machine told of a job: wall seconds per step and what a GPU must hold; or, if
    `measured` is false, `why` they told nothing."""

    measured: bool
    why: str = ""
    step_wall_s: float | None = None
    gpu_memory_bytes: int | None = None
    precision: str | None = None
    computes: str | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, as it stands. `offer_id` and `nano_usd_per_hour` are of the run that lives now. Where there is no
    `forecast`, `no_forecast` says why."""

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
    paid_nano_usd: int  # what is booked; a living run is booked every few minutes of market time
    runs: int
    moves: int
    steps_repeated: int
    simulated: bool
    note: str  # the newest thing that was decided or that happened, in words; after its marks
    quarantine: str | None = None  # what broke the control plane's work on it; it is kept still until `resume`
    warnings: tuple[str, ...] = ()  # what is wrong with its present run, such as "stands still at step 12"
    trial: Trial | None = None  # of a job that was just submitted, if its program was tried before
    forecast: JobForecast | None = None
    no_forecast: str = NOT_ASKED

    @property
    def zone(self) -> str | None:
        """`provider/zone` of the offer it runs on."""
        return None if self.offer_id is None else short_zone(self.offer_id)

    @property
    def to_go(self) -> str:
        """The forecast in words, or why there is none; empty for a job that has ended."""
        if self.state in TERMINAL or self.no_forecast == NOT_ASKED:
            return ""
        if self.forecast is None:
            return self.no_forecast
        from orchestrator.policy.telling.explain import span

        return f"{about_usd(self.forecast.cost_nano_usd)}, {span(self.forecast.duration_s)}"


@dataclass(frozen=True, slots=True)
class JobList:
    kind: ClassVar[str] = "jobs"

    at_ms: int
    jobs: tuple[JobView, ...]
    paid_nano_usd: int  # of the jobs listed
    simulated: bool
    ended: int = 0  # how many more have ended and are not listed
    next_cursor: str | None = None  # of the next page; None: this is the last one


@dataclass(frozen=True, slots=True)
class ControlPlaneView:
    """`since_ms` is None when nothing runs."""

    kind: ClassVar[str] = "control-plane"

    running: bool
    pid: int | None
    host: str | None
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class StatusView:
    """One job in detail."""

    kind: ClassVar[str] = "status"

    at_ms: int
    job: JobView
    runs: tuple[Run, ...]
    migration: Migration | None  # the one in progress
    events: tuple[Event, ...]  # newest last
    control_plane: ControlPlaneView


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of a plan. `role`: choose, stay, next, no (infeasible) or baseline (on-demand, without us)."""

    role: Literal["choose", "stay", "next", "no", "baseline"]
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
    relative_speed: Estimate | None = None  # only where nothing else is known; of the machine that its provenance names


@dataclass(frozen=True, slots=True)
class Standby:
    """The node that `standby: warm` keeps beside the job's own, and what it adds to the cost until the job is done."""

    offer_id: str
    nano_usd_per_hour: int
    cost_nano_usd: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What a plan says of one job. `choices` is ranked, `count` is how many offers were looked at.

    `front` are the offers to which no other is both cheaper and faster, `picks` what each objective would take; both
    only of a job that is not submitted yet. `chance` is that of keeping deadline and budget; None: they are kept at the
    95th percentile, there are none, or nothing is known. `evidence` says what its speed is known from; with "none"
    there is neither a speed nor a cost nor a date, only `relative_speed` and the price per hour of each choice.
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


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan to review; its JSON is the saved plan document, of which `plan` and `new_jobs` are read back.

    `new_jobs` are not submitted yet; applying the plan submits them under these very ids. With `anywhere` it is about
    offers of the catalogue, of clouds that are `not_enabled`: it tells, and can neither be submitted nor applied.
    """

    kind: ClassVar[str] = "plan"

    id: str
    at_ms: int
    price_age_s: float | None  # None: a provider has never answered
    simulated: bool
    decisions: tuple[Decision, ...]
    plan: Plan
    new_jobs: tuple[Job, ...]
    anywhere: bool = False
    not_enabled: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether applying it would start or move anything."""
        return not self.anywhere and any(decision.action in ("place", "move") for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class Accepted:
    """Something was handed to the control plane. `control_plane` False: it will be done when one runs."""

    kind: ClassVar[str] = "accepted"

    command: str
    job_ids: tuple[str, ...]
    message: str
    control_plane: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    kind: ClassVar[str] = "log-line"

    run_id: str
    number: int  # of the run within its job, from 1
    zone: str
    text: str


@dataclass(frozen=True, slots=True)
class EventList:
    """`next_cursor` is of the page of the events before these; None: there are none."""

    kind: ClassVar[str] = "events"

    events: tuple[Event, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class EntryList:
    """Ledger entries in the order of writing. `next_cursor` is of the next page; None: this is the last one."""

    kind: ClassVar[str] = "ledger-entries"

    entries: tuple[Entry, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of a migration: when it was entered and how long it took (None: not left yet)."""

    step: str
    at_ms: int
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why something is as it is. `decision` is what the plan said of the job, `history` what was decided before."""

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


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A kind of hardware for a profiled job. `shortfall_bytes` above 0: it does not fit there, by so much.

    Steps per market second with their 5th and 95th percentile; the price is the lowest of any offer of the kind.
    """

    gpu: str | None
    gpu_count: int
    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    throughput_source: str
    shortfall_bytes: int
    nano_usd_per_hour: int | None
    nano_usd_per_step: float | None
    simulated: bool


@dataclass(frozen=True, slots=True)
class ProfileView:
    """What one step of a job does, and what that means on each kind of hardware, the cheapest per step first.

    `precision` is what speeds are predicted at; `computes` what most of the arithmetic is: matrices, convolutions,
    recurrences or lookups. `gpu_memory_bytes` is for one GPU alone; `sharding` divides the state on several. Of
    `step_wall_s` no operation computed for `outside_wall_s`, which a GPU does not shorten.
    """

    kind: ClassVar[str] = "profile"

    name: str
    at_ms: int
    flops: float
    half_flops: float
    precision: str
    computes: str | None
    sharding: str
    traffic_bytes: float
    operations: int
    parameters: int
    resident_bytes: int
    activation_bytes: int
    gpu_memory_bytes: int
    step_wall_s: float
    outside_wall_s: float
    kinds: tuple[ProfileRow, ...]
    simulated: bool


@dataclass(frozen=True, slots=True)
class ImportedTable:
    """A table of throughputs that was taken over. `misfits` of its cells say that a job does not fit."""

    kind: ClassVar[str] = "throughput-table"

    source: str
    rates: int
    misfits: int
    jobs: tuple[str, ...]
    families: tuple[str, ...]
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FetchedFile:
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """`missing` are outputs that the job file names and that the job has not made."""

    kind: ClassVar[str] = "fetched"

    job_id: str
    folder: str
    files: tuple[FetchedFile, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`; `fix` is empty when there is nothing to do."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    kind: ClassVar[str] = "doctor"

    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        return any(check.state == "fail" for check in self.checks)


@dataclass(frozen=True, slots=True)
class SettingList:
    kind: ClassVar[str] = "config"

    settings: tuple[ShownSetting, ...]


@dataclass(frozen=True, slots=True)
class Version:
    kind: ClassVar[str] = "version"

    version: str
    python: str
    platform: str


def short_zone(offer_id: str) -> str:
    """`local/sim-east/sim-east-1a/cpu.s/spot` -> `local/sim-east-1a`; the region where there is no zone."""
    provider, region, zone = location_of(offer_id)
    return f"{provider}/{zone or region}"


def label_of(labels: Mapping[str, str]) -> str:
    """Labels as `a=1,b=2`."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
