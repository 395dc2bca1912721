"""SimSite: a site whose trainers train in virtual time, on the machines of a FakeCloud.

It outlives control planes, as a real site does: a new one that attaches to the same SimSite finds the runs that an
earlier one started, and what every trainer really did (`book`), whatever was heard of it. Must not know: policies, the
store, prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path

from orchestrator.engine.reports import report_of
from orchestrator.engine.runtime import RunReport, RunSpec, TrainerState
from orchestrator.sim.catalog import SimCatalog, name_of, step_of
from providers.clock import Clock
from providers.fake import FakeCloud
from providers.instance import Instance, InstanceState

HOLD_S = 30.0
YIELD_MARGIN_S = 2.0  # before the deadline of a notice


def hash_of(job_id: str, step: int) -> str:
    """That of the weights of this job after so many steps."""
    return blake2b(f"{job_id}@{step}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Pace:
    """Wall seconds: of one step, of loading libraries, of restoring, between two checkpoints."""

    step_s: float = 1.0
    prepare_s: float = 2.0
    restore_s: float = 1.0
    checkpoint_every_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Trained:
    """What one run really did, heard of or not: `step` is how far it came, `noticed` whether it knew of its end."""

    run_id: str
    job_id: str
    generation: int
    start_step: int
    step: int
    state: TrainerState
    noticed: bool


@dataclass
class _Trainer:
    """One run on one machine. `at_s` is the wall instant up to which it has been simulated; `over`: its last one."""

    run_id: str
    token: str
    at_s: float
    state: TrainerState = "starting"
    ready_s: float = 0.0
    spec: RunSpec | None = None
    steps: int = 0
    speed: float = 1.0  # steps per wall second
    step: float = 0.0
    start_step: int = 0
    saved_step: int = 0
    saved_s: float = 0.0
    manifest: str | None = None
    hold_until_s: float | None = None
    successors: set[int] = field(default_factory=set)
    stop: bool = False
    mute_since_s: float | None = None
    error: str | None = None
    over: bool = False


class SimSite:
    """Implements orchestrator.engine.runtime.Runtime; the methods below "what happens" are for scripts."""

    def __init__(
        self,
        cloud: FakeCloud,
        clock: Clock,
        catalog: SimCatalog,
        pace: Pace | None = None,
        *,
        lease_s: float = 60.0,
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._catalog = catalog
        self._pace = pace or Pace()
        self._lease_s = lease_s
        self._trainers: dict[str, _Trainer] = {}
        self._killed: list[_Trainer] = []
        catalog.look = self._look
        self._bugs: dict[str, list[int]] = {}
        self._deaf: set[str] = set()
        self._misdeeds: dict[str, Callable[[RunReport, float], RunReport]] = {}
        self.asked_for_stacks: list[str] = []
        self._garbled: dict[str, Mapping[str, object]] = {}
        self._restores_s: dict[str, float] = {}

    # -- what happens -------------------------------------------------------------------------------------------------
    def raise_at(self, job_id: str, *steps: int) -> None:
        """Let the job's code raise once at each of these steps, in this order."""
        self._bugs.setdefault(job_id, []).extend(steps)

    def misbehave(self, job_id: str, how: Callable[[RunReport, float], RunReport]) -> None:
        """Let this job's runs not raise at the steps of `raise_at`, but be heard of otherwise: `how` is given the
        report of a run that raised and the wall seconds since."""
        self._misdeeds[job_id] = how

    def garble(self, job_id: str, **said: object) -> None:
        """From now on this job's trainers say this of themselves instead of what is true; without words, the truth."""
        self._garbled[job_id] = said

    def restore_takes(self, job_id: str, wall_s: float) -> None:
        """From now on, on every machine."""
        self._restores_s[job_id] = wall_s

    def mute(self, run_id: str) -> None:
        """Let a trainer work on without answering any more, until its lease is over."""
        self._trainers[run_id].mute_since_s = self._clock.monotonic_s()

    def deafen(self, job_id: str) -> None:
        """From now on this job's code reaches no step boundary at which it would be told to hold or to stop."""
        self._deaf.add(job_id)

    def training(self) -> list[str]:
        """The runs that train now, heard of or not."""
        return [trainer.run_id for trainer in self._look() if trainer.state == "training"]

    def book(self) -> list[Trained]:
        """Every run that ever trained, by job and generation."""
        machines = {instance.token: instance for instance in self._cloud.instances()}
        found = []
        for trainer in [*self._look(), *self._killed]:
            if trainer.spec is not None and (trainer.spec.job_id, trainer.spec.generation) in self._catalog.fenced_s:
                machine = machines.get(trainer.token)
                noticed = machine is not None and machine.notice_deadline_ms is not None
                spec, step = trainer.spec, int(trainer.step + 1e-6)
                found.append(
                    Trained(spec.run_id, spec.job_id, spec.generation, trainer.start_step, step, trainer.state, noticed)
                )
        return sorted(found, key=lambda trained: (trained.job_id, trained.generation))

    # -- Runtime ------------------------------------------------------------------------------------------------------
    def bootstrap(self, *, token: str) -> str:
        return f"join {token}"

    def nodes(self) -> Mapping[str, str]:
        return {
            instance.token: instance.id
            for instance in self._cloud.instances()
            if instance.state is InstanceState.RUNNING
        }

    def prepare(self, run_id: str, token: str) -> None:
        if token in self.nodes() and run_id not in self._trainers:
            now = self._clock.monotonic_s()
            self._trainers[run_id] = _Trainer(run_id, token, now, ready_s=now + self._pace.prepare_s)

    def start(self, spec: RunSpec) -> None:
        trainer = self._trainers.get(spec.run_id)
        if trainer is not None and trainer.spec is None:
            steps, throttle = spec.trainer["steps"], spec.trainer["throttle"]
            assert isinstance(steps, int)
            assert isinstance(throttle, float)
            trainer.spec, trainer.steps, trainer.speed = spec, steps, throttle / self._pace.step_s
            trainer.state = "starting"
            trainer.ready_s = self._clock.monotonic_s() + self._restores_s.get(spec.job_id, self._pace.restore_s)

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        machines = {instance.token: instance for instance in self._cloud.instances()}
        return {run_id: self._said(run_id, self._report(run_id, machines)) for run_id in run_ids}

    def hold(self, run_id: str, successor: int) -> None:
        self._look()
        trainer, now = self._trainers.get(run_id), self._clock.monotonic_s()
        if trainer is not None and trainer.spec is not None and trainer.state in ("training", "holding"):
            if trainer.spec.job_id in self._deaf:
                return
            trainer.hold_until_s = now + HOLD_S
            trainer.successors.add(successor)
            if trainer.state == "training" and self._save(trainer, trainer.spec, int(trainer.step), now):
                trainer.state, trainer.step = "holding", float(int(trainer.step))

    def unhold(self, run_id: str) -> None:
        self._look()
        if run_id in self._trainers:
            self._trainers[run_id].hold_until_s = None

    def stop(self, run_id: str) -> None:
        self._look()
        trainer = self._trainers.get(run_id)
        if trainer is not None and (trainer.spec is None or trainer.spec.job_id not in self._deaf):
            trainer.stop = True

    def stacks(self, run_id: str) -> None:
        self.asked_for_stacks.append(run_id)

    def kill(self, run_id: str) -> None:
        self._look()
        if run_id in self._trainers and self._trainers[run_id].mute_since_s is not None:
            return  # out of reach: no word gets through in either direction
        if (trainer := self._trainers.pop(run_id, None)) is not None:
            self._killed.append(trainer)

    def close(self) -> None:
        """Nothing to let go of."""

    # -- the trainers -------------------------------------------------------------------------------------------------
    def _look(self) -> list[_Trainer]:
        """All trainers, brought up to now; those of a machine that is forgotten stay as they were last seen."""
        if any(not trainer.over for trainer in self._trainers.values()):
            machines = {instance.token: instance for instance in self._cloud.instances()}
            for trainer in self._trainers.values():
                if not trainer.over and (machine := machines.get(trainer.token)) is not None:
                    self._advance(trainer, machine)
        return list(self._trainers.values())

    def _said(self, run_id: str, report: RunReport) -> RunReport:
        trainer = self._trainers.get(run_id)
        if trainer is None or trainer.spec is None or report.state in ("absent", "silent"):
            return report
        garbled = self._garbled.get(trainer.spec.job_id)
        return report_of(run_id, {**asdict(report), **garbled}) if garbled else report

    def _report(self, run_id: str, machines: Mapping[str, Instance]) -> RunReport:
        trainer = self._trainers.get(run_id)
        machine = machines.get(trainer.token) if trainer is not None else None
        if trainer is None or machine is None:
            return RunReport(run_id, "absent")
        self._advance(trainer, machine)
        if machine.state is not InstanceState.RUNNING:
            return RunReport(run_id, "absent")
        if trainer.mute_since_s is not None:
            return RunReport(run_id, "silent", silent_s=self._clock.monotonic_s() - trainer.mute_since_s)
        step = int(trainer.step)
        hashed = trainer.state == "finished" and trainer.spec is not None
        report = RunReport(
            run_id,
            trainer.state,
            step=step,
            total_steps=trainer.steps or None,
            loss=1.0 / (1.0 + step),
            step_wall_s=1.0 / trainer.speed,
            start_step=trainer.start_step,
            manifest=trainer.manifest,
            manifest_step=trainer.saved_step,
            useful_s=(step - trainer.start_step) / trainer.speed,
            weights_hash=hash_of(trainer.spec.job_id, step) if hashed and trainer.spec else None,
            error=trainer.error,
        )
        if trainer.state == "failed" and trainer.spec is not None and trainer.spec.job_id in self._misdeeds:
            return self._misdeeds[trainer.spec.job_id](report, self._clock.monotonic_s() - trainer.at_s)
        return report

    def _advance(self, trainer: _Trainer, machine: Instance) -> None:
        """Bring one trainer from where it was last looked at to now, or to the end of its machine."""
        now = self._clock.monotonic_s()
        if machine.billed_to_ms is not None:
            now, trainer.over = self._wall_s(machine.billed_to_ms), not machine.alive
        spec = trainer.spec
        if trainer.state == "starting" and now >= trainer.ready_s:
            trainer.state = "prepared" if spec is None else "restored"
            if spec is not None:
                manifest = spec.trainer["manifest"]
                named = manifest if isinstance(manifest, str) else None
                trainer.manifest = None if named is None else self._catalog.restored(spec.job_id, named)
                trainer.start_step = step_of(trainer.manifest) if trainer.manifest else 0
                trainer.step, trainer.saved_step = float(trainer.start_step), trainer.start_step
        if spec is None:
            return
        begun_s = self._catalog.fenced_s.get((spec.job_id, spec.generation))
        shut_out_s = self._catalog.shut_out_s(spec.job_id, spec.generation)
        lapsed_s = None if trainer.mute_since_s is None else trainer.mute_since_s + self._lease_s
        ends = [at for at in (shut_out_s, lapsed_s) if at is not None and at <= now]
        now = min([now, *ends])
        if trainer.state == "restored" and begun_s is not None:
            trainer.state, trainer.at_s, trainer.saved_s = "training", begun_s, begun_s
        if trainer.state == "holding":
            if trainer.stop or machine.notice_deadline_ms is not None:
                trainer.state = "yielded"
            elif trainer.hold_until_s is None or now >= trainer.hold_until_s:
                if all(self._catalog.void(Path(), spec.job_id, each) for each in sorted(trainer.successors)):
                    trainer.state, trainer.at_s = "training", trainer.hold_until_s or now
                    trainer.hold_until_s = None
                    trainer.successors.clear()
                else:
                    trainer.state = "fenced"
        if trainer.state == "training" and now > trainer.at_s:
            self._train(trainer, spec, machine, now)
        if ends and trainer.state in ("restored", "training", "holding"):
            trainer.state = "fenced"

    def _train(self, trainer: _Trainer, spec: RunSpec, machine: Instance, now: float) -> None:
        """From `at_s` to `now`: whatever comes first of the last step, a bug, and the deadline of a notice ends it."""
        bugs = self._bugs.get(spec.job_id, [])
        last_step = min([trainer.steps, *bugs[:1]])
        until = min(now, trainer.at_s + (last_step - trainer.step) / trainer.speed)
        leave_s = math.inf
        if machine.notice_deadline_ms is not None:
            leave_s = max(trainer.at_s, self._wall_s(machine.notice_deadline_ms) - YIELD_MARGIN_S)
        until = min(until, leave_s)
        begun, from_s = trainer.step, trainer.at_s
        trainer.step, trainer.at_s = begun + (until - from_s) * trainer.speed, until
        if last_step - trainer.step < 1e-6:
            trainer.step = float(last_step)
        every_s = self._pace.checkpoint_every_s
        if (saves := math.floor((until - trainer.saved_s) / every_s)) > 0:
            saved_s = trainer.saved_s + saves * every_s
            self._save(trainer, spec, int(begun + (saved_s - from_s) * trainer.speed), saved_s)
        ended: TrainerState | None = None
        if trainer.step >= trainer.steps:
            ended = "finished"
        elif bugs and trainer.step >= bugs[0]:
            bugs.pop(0)
            trainer.state, trainer.error = "failed", f"Traceback ...\nValueError: a bug at step {int(trainer.step)}"
            return
        elif trainer.stop or until == leave_s:
            ended = "yielded"
        if ended is not None and self._save(trainer, spec, int(trainer.step), until):
            trainer.state, trainer.step = ended, float(int(trainer.step))

    def _save(self, trainer: _Trainer, spec: RunSpec, step: int, at_s: float) -> bool:
        """Commit a checkpoint; a fenced trainer ends instead."""
        if not self._catalog.commit(spec.job_id, spec.generation, step):
            trainer.state = "fenced"
            return False
        trainer.saved_step, trainer.saved_s, trainer.manifest = step, at_s, name_of(spec.generation, step)
        return True

    def _wall_s(self, at_ms: int) -> float:
        """The wall instant of a market instant."""
        return self._clock.monotonic_s() - (self._clock.now_ms() - at_ms) / 1000 / self._clock.factor
