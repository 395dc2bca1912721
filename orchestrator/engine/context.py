"""Context: what all parts of the engine work with, and the observations that one tick shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

from orchestrator.engine.calls import LIMIT_S, Answer, Calls, Place
from orchestrator.engine.inputs.bucket_places import bucket_place
from orchestrator.engine.inputs.market_reader import MarketReader
from orchestrator.engine.inputs.speeds import SpeedReader
from orchestrator.engine.jobs.background_catalog import BackgroundCatalog
from orchestrator.engine.jobs.checkpoints import CheckpointCatalog
from orchestrator.engine.runtime import RunReport, Runtime
from orchestrator.engine.secret_values import SecretValues
from orchestrator.errors import NotFoundError, RowError, UnreadableRowError
from orchestrator.installation import Installation
from orchestrator.market import Location
from orchestrator.model import Event, Job, JobState, Migration, Run, RunState, new_id
from orchestrator.model.ids import RandomBits
from orchestrator.policy.group_turns import Parts
from orchestrator.policy.time_sharing import Given
from orchestrator.store import Command, Leadership, Quarantined, Tx
from providers.base import Provider
from providers.instance import Instance, together
from providers.offer import provider_of
from trainers.control import Risk

T = TypeVar("T")
ACTOR = "control-plane"
ACTIVE: tuple[JobState, ...] = ("queued", "starting", "running", "migrating", "pausing", "cancelling")
Standing = tuple[float, bool]
"""The order of jobs when room is short: the higher priority first, and at equal priority the job that has trained
before."""
TRAINS: tuple[RunState, ...] = ("training", "quiesced")
"""The states of a run that has the job."""
REPORTED_AGAIN_S = 3600.0  # wall: how often an event reports a step that keeps failing
UNHEARD_S = 30.0  # wall: how long a new control plane waits for a provider before it assumes that a machine is alive
FAULT_KEY = "fault:"
"""Prefix of the pacing keys that remember when such an event was last written."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work to do, read in one transaction at the start of a tick.

    `jobs` are the jobs that are neither ended nor paused, and the jobs of `runs`; `runs` are the runs that are not
    ended or not fully booked. Both may belong to `quarantined` jobs, which engine.compartment skips. `unreadable` has
    the error of each job with a row that cannot be read (such rows are left out), or with a machine at a provider that
    is not enabled.
    """

    jobs: Mapping[str, Job] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    migrations: tuple[Migration, ...] = ()
    commands: tuple[Command, ...] = ()
    quarantined: Mapping[str, Quarantined] = field(default_factory=dict)
    unreadable: Mapping[str, RowError] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether no job, machine, migration or command needs work."""
        unsettled = any(each.state in ACTIVE for each in self.quarantined.values())
        return not (self.jobs or self.runs or self.migrations or self.commands or unsettled or self.unreadable)

    def runs_of_project(self, project: str) -> Sequence[Run]:
        """The `runs` of the jobs of a project; those of unreadable jobs are left out."""
        return [run for run in self.runs if (job := self.jobs.get(run.job_id)) is not None and job.project == project]

    def runs_by_job(self) -> Mapping[str, Sequence[Run]]:
        """The `runs` by the ids of their jobs."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.job_id, []).append(run)
        return found


def _nothing(_where: str, _about: str) -> None:
    """The default for `crossing` and `crossed`: do nothing."""


@dataclass
class Round:
    """The present round on owned machines (engine.jobs.time_sharing) or of a group (engine.jobs.group_turns): its
    `number`, the turns that were `given` (None if each job may use any offer), for which jobs in which states (`seen`),
    the reason for each job (`why`), and the `parts` of the time that a group's plan gives its jobs."""

    number: int | None = None
    seen: frozenset[tuple[str, str]] = frozenset()
    given: Given | None = None
    why: Mapping[str, str] = field(default_factory=dict)
    parts: Parts = field(default_factory=dict)


@dataclass
class Context:
    """The engine's surroundings. `work`, `instances` and `reports` are this tick's observations. In `instances`, None
    means that the provider no longer lists that id; a missing id has not been described yet.

    These fields are not stored; after a crash they start empty:

    - `pacing`: wall times (monotonic seconds) for back-offs and intervals, by key: `what` or `what/id`.
    - `markets`, `speeds`: caches of data read from the store. `calls`: provider calls under way (engine.calls).
    - `places`: by job, the place reserved for it (engine.migration.limits): since when (monotonic seconds), on which
      offer, and the job's standing.
    - `round`, and `group_rounds` by group: the present turns on shared machines.
    - `announced`: preemption notices that the machines themselves reported: by run, when its machine ends (market ms).
    - `risks`: the risks last sent to each run (engine.jobs.risk).

    `crossing` and `crossed` are called before and after each step, with its compartment and its job or provider
    (engine.compartment).
    """

    installation: Installation
    runtime: Runtime
    checkpoints: CheckpointCatalog
    random: RandomBits
    leadership: Leadership | None = None
    secrets: SecretValues = field(default_factory=SecretValues)
    work: Work = Work()
    instances: dict[str, Instance | None] = field(default_factory=dict)
    reports: dict[str, RunReport] = field(default_factory=dict)
    pacing: dict[str, float] = field(default_factory=dict)
    markets: MarketReader = field(default_factory=MarketReader)
    speeds: SpeedReader = field(default_factory=partial(SpeedReader, unreadable=lambda *_: None))
    calls: Calls = field(default_factory=Calls)
    places: dict[str, tuple[float, str, Standing]] = field(default_factory=dict)
    round: Round = field(default_factory=Round)
    group_rounds: dict[str, Round] = field(default_factory=dict)
    announced: dict[str, int] = field(default_factory=dict)
    risks: dict[str, Risk] = field(default_factory=dict)
    crossing: Callable[[str, str], None] = _nothing
    crossed: Callable[[str, str], None] = _nothing

    @contextmanager
    def write(self) -> Iterator[Tx]:
        """A write transaction that fails if this control plane no longer leads. Raises NotLeaderError, StoreError."""
        with self.installation.store.write(self.leadership) as tx:
            yield tx

    def look(self) -> None:
        """Read the work to do from the store. Raises StoreError."""
        with self.installation.store.read() as tx:
            unreadable: dict[str, RowError] = {}
            runs = []
            jobs = {job.id: job for job in tx.jobs(states=ACTIVE, unreadable=unreadable.setdefault)}
            for run in tx.unsettled_runs(unreadable=unreadable.setdefault):
                try:
                    if run.job_id not in jobs and run.job_id not in unreadable:
                        jobs[run.job_id] = tx.job(run.job_id)
                except RowError as error:
                    unreadable[run.job_id] = error
                except NotFoundError:
                    unreadable[run.job_id] = UnreadableRowError("run", run.id, f"job_id: there is no job {run.job_id}")
                    continue
                if provider_of(run.offer_id) not in self.installation.providers:
                    unreadable.setdefault(run.job_id, _out_of_reach(run))
                runs.append(run)
            migrations = tuple(tx.migrations(open=True, unreadable=unreadable.setdefault))
            quarantined = {each.job_id: each for each in tx.quarantined()}
            unreadable = {_owner(tx, job_id, error): error for job_id, error in unreadable.items()}
            self.work = Work(jobs, tuple(runs), migrations, tuple(tx.open_commands()), quarantined, unreadable)

    def forget(self) -> None:
        """Drop pacing keys of finished jobs, runs, migrations and machines, and of old errors."""
        work, now_s = self.work, self.installation.clock.monotonic_s()
        alive = {*work.jobs, *(migration.id for migration in work.migrations), *(run.id for run in work.runs)}
        alive |= {instance_id for run in work.runs for instance_id in run.instance_ids}
        alive |= {job.group_id for job in work.jobs.values() if job.group_id is not None}

        def needed(key: str, at_s: float) -> bool:
            if key.startswith(FAULT_KEY):
                return now_s - at_s < REPORTED_AGAIN_S
            return "/" not in key or key.split("/", 1)[1] in alive

        self.pacing = {key: at_s for key, at_s in self.pacing.items() if needed(key, at_s)}
        self.announced = {run_id: at_ms for run_id, at_ms in self.announced.items() if run_id in alive}
        self.risks = {run_id: risk for run_id, risk in self.risks.items() if run_id in alive}
        self.group_rounds = {group: each for group, each in self.group_rounds.items() if group in alive}

    @property
    def now_ms(self) -> int:
        """The market time in ms since the epoch."""
        return self.installation.clock.now_ms()

    @property
    def used_offers(self) -> frozenset[str]:
        """Ids of the offers on which jobs train. All decisions of a tick must read the market with the same ids:
        whenever an unlisted offer joins or leaves them, `markets` reads the whole market again."""
        return frozenset(run.offer_id for run in self.work.runs if run.end is None and run.state in TRAINS)

    def new_id(self, prefix: str) -> str:
        """A new id, such as `job_...` for the prefix `job`."""
        return new_id(prefix, self.now_ms, self.random)

    def instance(self, run: Run) -> Instance | None:
        """The run's machine as last described, several machines as one (`together`). If its provider reports no notice,
        it has the notice that the machine itself reported. None if there is no machine or the provider has not
        described it."""
        described = [self.instances.get(instance_id) for instance_id in run.instance_ids]
        known = [each for each in described if each is not None]
        if not known or len(known) < len(described):
            return None
        found = together(known)
        if found.notice_deadline_ms is None and found.alive and run.id in self.announced:
            return replace(found, notice_deadline_ms=self.announced[run.id])
        return found

    def gone(self, run: Run) -> bool:
        """Whether the provider has confirmed that all the run's machines are gone. A missing answer does not confirm
        it."""
        return run.instance_id is not None and all(self.is_gone(each) for each in run.instance_ids)

    def lost(self, run: Run) -> bool:
        """Whether the provider has confirmed that a machine of the run is gone: the run cannot continue without it."""
        return any(self.is_gone(each) for each in run.instance_ids)

    def is_gone(self, instance_id: str) -> bool:
        """Whether its provider has confirmed that a machine is gone."""
        if instance_id not in self.instances:
            return False
        instance = self.instances[instance_id]
        return instance is None or not instance.alive

    def lived_until_ms(self, instance_id: str) -> int | None:
        """When a machine ended by itself (market ms), because it was not renewed; None if it may still be alive, or
        if its provider has reported since that it is."""
        ends_s, now_s = self.pacing.get(may_live(instance_id)), self.installation.clock.monotonic_s()
        if ends_s is None or ends_s >= now_s:
            return None
        instance = self.instances.get(instance_id)
        if instance is not None and instance.alive and self.pacing.get(f"seen/{instance_id}", -inf) > ends_s:
            return None
        return self.now_ms - round((now_s - ends_s) * 1000 * self.installation.clock.factor)

    def unheard(self, run: Run) -> bool:
        """Whether an earlier control plane knew a machine of the run, and its provider has not described it to this
        one: so the machine may have ended long ago. At most for UNHEARD_S."""
        if run.billed_from_ms is None or run.billed_to_ms is not None:
            return False
        described = all(each in self.instances for each in run.instance_ids)
        return not described and self.waited_s(f"unheard/{run.id}") <= UNHEARD_S

    def may_have_ended(self, run: Run) -> bool:
        """Whether a machine of the run may have ended by itself, which its provider has not confirmed. So the amount
        that its job has spent is not known."""
        waits = any(self.lived_until_ms(each) is not None and not self.is_gone(each) for each in run.instance_ids)
        return waits or self.unheard(run)

    def over(self, run: Run) -> bool:
        """Whether a run has ended and cannot train any more: its machine is gone or booked, or its lease has expired.

        A run without contact for a whole lease has stopped itself, so this need not wait for a provider that never
        answers. Lease times are lost with this process; the next one waits again.
        """
        if run.billed_to_ms is not None or self.gone(run):
            return True
        return run.end is not None and self.waited_s(f"lease/{run.id}") > self.installation.config.lease_s

    def lease_runs_out(self, run: Run) -> None:
        """Remember that this run was ordered to end. A machine that does not receive the order stops renewing its
        lease."""
        self.waited_s(f"lease/{run.id}")

    def lease_ran_out(self, run: Run) -> None:
        """Remember that this run's lease has expired, or that it stopped itself."""
        self.pacing[f"lease/{run.id}"] = float("-inf")

    def provider(self, offer_id: str) -> Provider:
        """The provider of an offer. Raises KeyError if it is no longer enabled."""
        return self.installation.providers[provider_of(offer_id)]

    def catalog(self, purpose: str) -> BackgroundCatalog:
        """The checkpoints of jobs, read outside the tick. Calls that belong together share a `purpose`."""
        return BackgroundCatalog(self, purpose)

    def checkpoint_root(self, job: Job) -> str:
        """The folder or URL of a job's checkpoints."""
        return self.installation.checkpoint_root(job.spec.checkpoint.to)

    def bucket_of(self, job: Job) -> Location | None:
        """The cloud and region of the bucket of a job's checkpoints; None if they are in a folder."""
        return bucket_place(self.installation.config, self.checkpoint_root(job))

    def due(self, key: str, every_s: float) -> bool:
        """True at most once in `every_s` wall seconds for each key."""
        now = self.installation.clock.monotonic_s()
        last = self.pacing.get(key)
        if last is not None and now - last < every_s:
            return False
        self.pacing[key] = now
        return True

    def few_due(self, prefix: str, items: Sequence[T], id_of: Callable[[T], str], every_s: float, most: int) -> list[T]:
        """Of the items for which `due` would be true with the key `prefix/id`, the `most` that waited longest, in their
        order; they count as done. The others come next."""
        now = self.installation.clock.monotonic_s()
        last = {id_of(each): self.pacing.get(f"{prefix}/{id_of(each)}", -inf) for each in items}
        waiting = [each for each in items if now - last[id_of(each)] >= every_s]
        taken = {id_of(each) for each in sorted(waiting, key=lambda each: last[id_of(each)])[:most]}
        self.pacing |= {f"{prefix}/{each}": now for each in taken}
        return [each for each in waiting if id_of(each) in taken]

    def ask(
        self, key: str, place: Place, call: Callable[[], T], *, every_s: float = 0.0, abreast: int = 1
    ) -> Answer[T] | None:
        """The newest answer to `call`, once; None if there is none. The call begins at most every `every_s` wall
        seconds, and not while `abreast` calls of its key are under way or its place has no free slot."""
        answer = self.answer(key)
        if answer is None and self.may_ask(key, place, every_s, abreast):
            answer = self.begin(key, place, call)
        return answer

    def answer(self, key: str, *, keep: bool = False) -> Answer[Any] | None:
        """The newest answer to the calls with this key, once unless `keep`; None while there is none."""
        return self.calls.answer(key, self.installation.clock.monotonic_s(), keep=keep)

    def may_ask(self, key: str, place: Place, every_s: float = 0.0, abreast: int = 1) -> bool:
        """Whether the call may begin now, as for `ask`. If so, the caller must begin it, or ask again `every_s`
        later."""
        now_s = self.installation.clock.monotonic_s()
        if now_s - self.pacing.get(key, -inf) < every_s or not self.calls.may_begin(key, place, now_s, abreast):
            return False
        self.pacing[key] = now_s
        return True

    def begin(
        self, key: str, place: Place, call: Callable[[], T], limit_s: float = LIMIT_S, *, keep: bool = False
    ) -> Answer[T] | None:
        """Begin a call for which `may_ask` is true. Returns its answer if it arrived at once."""
        now_s = self.installation.clock.monotonic_s()
        return self.calls.begin(key, place, call, self.now_ms, now_s, limit_s, keep=keep)

    def waited_s(self, key: str) -> float:
        """Wall seconds since this process first asked for `key`."""
        now = self.installation.clock.monotonic_s()
        return now - self.pacing.setdefault(key, now)

    def waits_anew(self, key: str) -> None:
        """Restart the time of `waited_s`."""
        self.pacing.pop(key, None)

    def typed_name(self, job: Job) -> str:
        """The name or id to use for a job in suggested commands."""
        with self.installation.store.read() as tx:
            return tx.typed_name(job.id, job.name)

    def event(
        self,
        tx: Tx,
        kind: str,
        message: str,
        job: Job,
        *,
        run: Run | None = None,
        migration: Migration | None = None,
        plan_id: str | None = None,
        actor: str = ACTOR,
        **data: str | int | float | bool | None,
    ) -> None:
        """Append an event to the audit trail, in the transaction of the change it describes."""
        tx.add_event(
            Event(
                id=self.new_id("ev"),
                at_ms=self.now_ms,
                kind=kind,
                message=self.secrets.mask(message),
                actor=actor,
                job_id=job.id,
                run_id=run.id if run else None,
                migration_id=migration.id if migration else None,
                plan_id=plan_id,
                data=data,
                project=job.project,
                owner=job.owner,
                labels=job.spec.labels,
            )
        )


def may_live(instance_id: str) -> str:
    """The key for the monotonic time until which a machine may live without another renewal (machines.renewals)."""
    return f"may-live/{instance_id}"


def _out_of_reach(run: Run) -> RowError:
    return RowError(
        f"{run.id} is on {run.offer_id}, whose provider is not enabled: its machine can be neither observed nor ended",
        hint="enable the provider again (providers.enabled), or end the machine in the provider's console",
    )


def _owner(tx: Tx, job_id: str, error: RowError) -> str:
    """The job that a row belongs to, even if the row names another."""
    if isinstance(error, UnreadableRowError) and error.table == "run":
        return tx.owner_of_run(str(error.key)) or job_id
    return job_id
