"""SimSite: a site whose trainers run in virtual time on the machines of a cloud.

It outlives control planes, as a real site does: a new one finds the runs that an earlier one started. `book` records
what every trainer really did, whether or not it was reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from math import inf
from types import MappingProxyType
from typing import Protocol

from orchestrator.engine.machines.gang_report import Ends, combined
from orchestrator.engine.machines.reports import report_of
from orchestrator.engine.runtime import RunReport, RunSpec, TrainerState
from orchestrator.errors import SiteError
from orchestrator.nodes.boot.launching import Remote
from orchestrator.nodes.messages import JobFiles
from providers.clock import Clock
from providers.instance import EndReason, Instance, InstanceState, together
from tests.rig.folder import Folder
from tests.rig.trainer import Naps, Surroundings, Timings, Trainer
from trainers.control import ControlDirectory, Progress, Risk
from trainers.errors import MalformedMessage
from trainers.spec import SetupSpec

FETCHED_BYTES = 250_000_000


class Machines(Protocol):
    """A cloud, as far as trainers are concerned."""

    def instances(self) -> tuple[Instance, ...]:
        """All machines that are not forgotten, in their present state."""
        ...


def hash_of(job_id: str, step: int) -> str:
    """The weights' hash of this job after `step` steps."""
    return blake2b(f"{job_id}@{step}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What one run really did, heard of or not: `step` is how far it came, `noticed` whether it knew of its end and
    could have acted on that, `slept` whether it was ever asleep."""

    run_id: str
    job_id: str
    generation: int
    start_step: int
    step: int
    state: TrainerState
    noticed: bool
    slept: bool = False


def _as_one(machines: Sequence[Instance]) -> Instance:
    """As long as all of them lived. The notice of one that outlived another, which ended without one, may have come too
    late."""
    ended = [each for each in machines if each.billed_to_ms is not None]
    first = min(ended, key=lambda each: each.billed_to_ms or 0, default=None)
    whole = together(machines)
    if first is None:
        return replace(whole, billed_to_ms=None)
    surprised = first.notice_deadline_ms is None and first.end_reason is not EndReason.USER
    notice_ms = None if surprised else whole.notice_deadline_ms
    return replace(whole, billed_to_ms=first.billed_to_ms, notice_deadline_ms=notice_ms)


class SimSite:
    """Implements orchestrator.engine.runtime.Runtime; the methods below "what happens" are for scripts."""

    def __init__(
        self, cloud: Machines, clock: Clock, folder: Folder, timings: Timings | None = None, *, lease_s: float = 60.0
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._folder = folder
        self._around = Surroundings(clock, folder, timings or Timings(), lease_s)
        self._trainers: dict[str, Trainer] = {}
        self._killed: list[Trainer] = []
        self._deaf: set[str] = set()
        self._misdeeds: dict[str, Callable[[RunReport, float], RunReport]] = {}
        self.liars: set[str] = set()  # jobs of whose runs an agent ever lied
        self.asked_for_stacks: list[str] = []
        self.risks: dict[str, list[Risk]] = {}
        self.boot_errors: dict[str, str] = {}
        self.mute: set[str] = set()  # offers whose machines run, but whose agents never report
        self._kept: dict[str, str] = {}
        self._garbled: dict[str, Mapping[str, object]] = {}
        self._ends = Ends()
        self._lies: dict[str, tuple[int, Callable[[Mapping[str, object]], Mapping[str, object]]]] = {}
        self._spoilt: dict[str, Callable[[bytes], bytes]] = {}
        self._restores_s: dict[str, float] = {}
        self._prepares_s: Callable[[str], float] | None = None
        self.fetches_s = 0.0  # how long machines fetch chunks ahead, after they are prepared
        self._setup_s = 0.0
        self._setup_error: Callable[[str], str | None] = lambda _: None
        self._setups: dict[str, str] = {}  # run -> what its set-up will fail with; empty: nothing

    # -- what happens -------------------------------------------------------------------------------------------------
    @property
    def naps(self) -> Naps:
        """When trainers fall asleep in the middle of a save."""
        return self._around.naps

    def wake(self, run_id: str, *, renewed: bool = False) -> None:
        """Resumes a paused trainer (Trainer.wake)."""
        self.look()
        if (trainer := self._trainers.get(run_id)) is not None:
            trainer.wake(self._machine(trainer), renewed=renewed)

    def close_eyes(self) -> None:
        """Ends all paused trainers for good."""
        for trainer in [*self._trainers.values(), *self._killed]:
            trainer.abandon()

    def raise_at(self, job_id: str, *steps: int) -> None:
        """Makes the job's code raise once at each of these steps, in this order."""
        self._around.bugs.setdefault(job_id, []).extend(steps)

    def misbehave(self, job_id: str, how: Callable[[RunReport, float], RunReport]) -> None:
        """Let this job's runs not raise at the steps of `raise_at`, but be heard of otherwise: `how` is given the
        report of a run that raised and the wall seconds since."""
        self._misdeeds[job_id] = how

    def garble(self, job_id: str, **said: object) -> None:
        """From now on this job's trainers say this of themselves instead of what is true; without words, the truth."""
        self._garbled[job_id] = said

    def spoil_progress(self, job_id: str, alter: Callable[[bytes], bytes] | None) -> None:
        """From now on the progress file of this job's trainers is altered so before anybody reads it; None: no more."""
        if alter is None:
            self._spoilt.pop(job_id, None)
        else:
            self._spoilt[job_id] = alter

    def lie(self, job_id: str, rank: int, how: Callable[[Mapping[str, object]], Mapping[str, object]] | None) -> None:
        """From now on the agent of machine `rank` of this job's runs says `how` of the truth; None: the truth."""
        self._lies.pop(job_id, None)
        self.liars.add(job_id)
        if how is not None:
            self._lies[job_id] = (rank, how)

    def fall_silent(self, run_id: str) -> Callable[[], None]:
        """From now on the agent of a run exchanges no messages; its trainer goes on, until its lease is over. Returns
        what lets it speak and listen again."""
        (trainer,) = (each for each in self.look() if each.run_id == run_id)
        trainer.silent_since_s = self._clock.monotonic_s()

        def speak() -> None:
            self.look()
            if self._trainers.get(run_id) is trainer and run_id in self._kept:
                trainer.silent_since_s = None

        return speak

    def put_to_sleep(self, run_id: str) -> None:
        """Pauses the machines of a run, with its agent and its trainer, between two steps; `wake` resumes them."""
        (trainer,) = (each for each in self.look() if each.run_id == run_id)
        trainer.sleep(with_host=True)

    def restore_takes(self, job_id: str, wall_s: float) -> None:
        """From now on, on every machine."""
        self._restores_s[job_id] = wall_s

    def prepare_takes(self, wall_s: Callable[[str], float]) -> None:
        """From now on, by the id of the offer; asked once per machine."""
        self._prepares_s = wall_s

    def set_up_takes(self, wall_s: float, error: Callable[[str], str | None] = lambda _: None) -> None:
        """From now on, on every machine; `error`, by run, is what it fails with."""
        self._setup_s, self._setup_error = wall_s, error

    def drop_reports(self, run_id: str) -> None:
        """Let a trainer work on without answering any more, until its lease is over."""
        self._trainers[run_id].silent_since_s = self._clock.monotonic_s()

    def ignore_control(self, job_id: str) -> None:
        """From now on this job's code reaches no step boundary at which it could be asked to quiesce or stop."""
        self._deaf.add(job_id)

    def training(self) -> list[str]:
        """The runs that train now, whether or not they report."""
        return [trainer.run_id for trainer in self.look() if trainer.state == "training"]

    def speaks(self, run_id: str) -> bool:
        """Whether a run trains or waits, and its agent exchanges messages."""
        there = (each for each in self.look() if each.run_id == run_id)
        return any(
            each.state in ("restored", "training", "quiesced") and each.unreachable_since_s is None and not each.asleep
            for each in there
        )

    def book(self) -> list[TrainingState]:
        """Every run that ever trained, by job and generation."""
        machines = self._machines()
        found = []
        for trainer in [*self.look(), *self._killed]:
            if trainer.spec is not None and (trainer.spec.job_id, trainer.spec.generation) in self._folder.fenced_s:
                machine = machines.get(trainer.token)
                noticed = machine is not None and machine.notice_deadline_ms is not None and not trainer.asleep
                spec, step = trainer.spec, int(trainer.step + 1e-6)
                begun, state, slept = trainer.start_step, trainer.state, trainer.slept
                found.append(
                    TrainingState(spec.run_id, spec.job_id, spec.generation, begun, step, state, noticed, slept)
                )
        return sorted(found, key=lambda trained: (trained.job_id, trained.generation))

    def failures(self) -> list[tuple[str, str, str]]:
        """(job, run, error) of every trainer that failed."""
        return [
            (trainer.spec.job_id, trainer.run_id, trainer.error)
            for trainer in [*self._trainers.values(), *self._killed]
            if trainer.error is not None and trainer.spec is not None
        ]

    # -- Runtime ------------------------------------------------------------------------------------------------------
    def bootstrap(self, *, token: str, nodes: int = 1, remote: Remote | None = None) -> str:
        """The command with which a machine joins the site."""
        return f"join {token} of {nodes}"

    def boot_error(self, token: str) -> str | None:
        """Why the machine with this token cannot be used."""
        return self.boot_errors.get(token)

    def joined(self, token: str, nodes: int = 1) -> bool:
        """Whether the machines with this token are up."""
        up = [each for each in self._cloud.instances() if each.token == token and each.state is InstanceState.RUNNING]
        return len([each for each in up if each.offer_id not in self.mute]) == nodes

    def prepare(
        self,
        run_id: str,
        token: str,
        setup: SetupSpec | None = None,
        secrets: Mapping[str, str] = MappingProxyType({}),
        files: JobFiles | None = None,
        *,
        nodes: int = 1,
    ) -> None:
        """Prepares the machines for a run."""
        self._kept.setdefault(run_id, token)
        if self.joined(token, nodes) and run_id not in self._trainers and not self._busy(token):
            now, prepare_s = self._clock.monotonic_s(), self._around.timings.prepare_s
            if self._prepares_s is not None:
                machine = next(each for each in self._cloud.instances() if each.token == token)
                prepare_s = self._prepares_s(machine.offer_id)
            if setup is not None:
                self._setups[run_id] = self._setup_error(run_id) or ""
                prepare_s += self._setup_s
            self._trainers[run_id] = Trainer(run_id, token, self._around, now, ready_s=now + prepare_s)

    def start(self, spec: RunSpec) -> None:
        """Starts a run's trainer."""
        trainer = self._trainers.get(spec.run_id)
        if trainer is not None and trainer.spec is None:
            trainer.begin(spec, self._restores_s.get(spec.job_id, self._around.timings.restore_s))

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        """The reports of these runs."""
        machines = self._machines()
        found = {run_id: self._heard(run_id, self._report(run_id, machines)) for run_id in run_ids}
        return {run_id: report for run_id, report in found.items() if report is not None}

    def quiesce(self, run_id: str, successor: int) -> None:
        """Makes a run checkpoint and wait for its successor."""
        if (trainer := self._listens(run_id)) is not None:
            trainer.quiesce(successor)

    def resume(self, run_id: str) -> None:
        """Lets a quiesced run continue."""
        self.look()
        if run_id in self._trainers:
            self._trainers[run_id].quiesced_until_s = None

    def stop(self, run_id: str) -> None:
        """Makes a run checkpoint and stop."""
        if (trainer := self._listens(run_id)) is not None:
            trainer.stop = True

    def stacks(self, run_id: str) -> None:
        """Records the request for stack traces."""
        self.asked_for_stacks.append(run_id)

    def risk(self, run_id: str, risk: Risk) -> None:
        """Records what a run was sent."""
        self.risks.setdefault(run_id, []).append(risk)

    def parted(self, run_id: str) -> bool:
        """See Runtime.parted."""
        return True

    def kill(self, run_id: str) -> None:
        """Kills a run's trainer."""
        self.look()
        if run_id in self._trainers and self._trainers[run_id].unreachable_since_s is None:
            trainer = self._trainers.pop(run_id)
            trainer.abandon()
            self._killed.append(trainer)

    def unwritten(self, run_ids: Sequence[str]) -> Mapping[str, SiteError]:
        """None: its orders arrive at once."""
        return {}

    def known(self) -> Sequence[str]:
        """The runs that a machine was ever prepared for, until they are forgotten."""
        return list(self._kept)

    def forget(self, run_id: str) -> None:
        """Of a machine that has ended, or that the engine gave up because its provider no longer lists it. One that
        lives nevertheless loses its lease, as without its orders."""
        if (trainer := self._trainers.get(run_id)) is not None and trainer.silent_since_s is None:
            trainer.silent_since_s = self._clock.monotonic_s()
        del self._kept[run_id]

    def close(self) -> None:
        """Does nothing."""

    # -- the trainers -------------------------------------------------------------------------------------------------
    def look(self) -> list[Trainer]:
        """All trainers, brought up to now; those of a machine that is forgotten stay as they were last seen."""
        if any(not trainer.over for trainer in self._trainers.values()):
            machines = self._machines()
            for trainer in self._trainers.values():
                if not trainer.over and (machine := machines.get(trainer.token)) is not None:
                    trainer.advance(machine)
        return list(self._trainers.values())

    def _heard(self, run_id: str, report: RunReport) -> RunReport | None:
        """What the machines of a run say of it, one of which may lie."""
        said, trainer = self._said(run_id, report), self._trainers.get(run_id)
        if not self._lies or trainer is None or report.state in ("absent", "silent"):
            return said
        of_run = [each for each in self._cloud.instances() if each.token == trainer.token]
        lies = self._lies.get(of_run[0].tags["tradewind-job"])
        if lies is None:
            return said
        rank, how = lies
        members = [said] * len(of_run)
        members[rank % len(of_run)] = report_of(run_id, how(asdict(said)))
        return combined(members, ended_for_s=self._ends.since_s(run_id, members, self._clock.monotonic_s()))

    def _said(self, run_id: str, report: RunReport) -> RunReport:
        trainer = self._trainers.get(run_id)
        if trainer is None or trainer.spec is None or report.state in ("absent", "silent"):
            return report
        garbled, alter = self._garbled.get(trainer.spec.job_id), self._spoilt.get(trainer.spec.job_id)
        if alter is not None:
            return report_of(run_id, self._read_back(report, alter))
        return report_of(run_id, {**asdict(report), **garbled}) if garbled else report

    def _read_back(self, report: RunReport, alter: Callable[[bytes], bytes]) -> Mapping[str, object]:
        """What the node says of a run whose progress file is altered."""
        control = ControlDirectory(self._folder.root.parent / "control")
        said = asdict(report)
        control.write_progress(
            Progress(**{each.name: said[each.name] for each in fields(Progress) if each.name in said})
        )
        file = control.path / "progress.json"
        file.write_bytes(alter(file.read_bytes()))
        try:
            progress = control.progress()
        except MalformedMessage as error:
            return {"state": "malformed", "error": str(error)}
        assert progress is not None
        return {name: value for name, value in asdict(progress).items() if name != "still_since_s"}

    def _listens(self, run_id: str) -> Trainer | None:
        """A trainer that can receive requests, advanced to the present."""
        self.look()
        trainer = self._trainers.get(run_id)
        if trainer is not None and trainer.silent_since_s is not None:
            return None  # asked again
        deaf = trainer is not None and trainer.spec is not None and trainer.spec.job_id in self._deaf
        return None if deaf else trainer

    def _busy(self, token: str) -> bool:
        """Whether another run's trainer has not ended on this machine: it has room for one."""
        there = (trainer for trainer in self.look() if trainer.token == token)
        return any(
            trainer.state not in ("failed", "finished", "checkpointed_and_stopped", "fenced") for trainer in there
        )

    def _machine(self, trainer: Trainer) -> Instance | None:
        return self._machines().get(trainer.token)

    def _machines(self) -> dict[str, Instance]:
        """By token; several of one launch as one that ends with the first of them, because the others stop then."""
        of_token: dict[str, list[Instance]] = {}
        for each in self._cloud.instances():
            of_token.setdefault(each.token, []).append(each)
        return {token: _as_one(machines) for token, machines in of_token.items()}

    def _report(self, run_id: str, machines: Mapping[str, Instance]) -> RunReport:
        trainer = self._trainers.get(run_id)
        machine = machines.get(trainer.token) if trainer is not None else None
        if trainer is None or machine is None:
            return RunReport(run_id, "absent")
        trainer.advance(machine)
        if machine.state is not InstanceState.RUNNING:
            return RunReport(run_id, "absent")
        if trainer.unreachable_since_s is not None:
            return RunReport(run_id, "silent", silent_s=self._clock.monotonic_s() - trainer.unreachable_since_s)
        if trainer.state == "prepared" and (error := self._setups.get(run_id)):
            return RunReport(run_id, "failed", error=error, setup_failed=True)
        if trainer.state == "prepared" and run_id in self._setups:
            return RunReport(run_id, "prepared", setup_s=self._setup_s)
        waits_s = self._clock.monotonic_s() - trainer.ready_s if trainer.state == "prepared" else inf
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
            fetching=waits_s < self.fetches_s,
            fetched_bytes=FETCHED_BYTES if self.fetches_s <= waits_s < inf and self.fetches_s else 0,
            useful_s=(step - trainer.start_step) / trainer.speed,
            weights_hash=hash_of(trainer.spec.job_id, step) if hashed and trainer.spec else None,
            error=trainer.error,
        )
        if trainer.state == "failed" and trainer.spec is not None and trainer.spec.job_id in self._misdeeds:
            return self._misdeeds[trainer.spec.job_id](report, self._clock.monotonic_s() - trainer.at_s)
        return report
