"""SimSite: a site whose trainers train in virtual time, on the machines of a FakeCloud.

It outlives control planes, as a real site does: a new one that attaches to the same SimSite finds the runs that an
earlier one started. Its checkpoints are a catalogue in memory that obeys the rules of checkpoint format v1: a run may
commit only while its generation's fence is the newest. Must not know: policies, the store, prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engine.checkpoints import ManifestInfo
from orchestrator.engine.runtime import RunReport, RunSpec, TrainerState
from providers.clock import Clock
from providers.fake import FakeCloud
from providers.instance import InstanceState

HOLD_S = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Wall seconds: of one step, of loading libraries, of restoring, between two checkpoints."""

    step_s: float = 1.0
    prepare_s: float = 2.0
    restore_s: float = 1.0
    checkpoint_every_s: float = 20.0


@dataclass
class SimCatalog:
    """Checkpoints in memory: (generation, step) by job, and fences. Implements CheckpointCatalog."""

    manifests: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    fences: dict[str, dict[int, str | None]] = field(default_factory=dict)

    def newest(self, root: Path, job_id: str, generation: int) -> ManifestInfo | None:
        """The newest of the newest fenced generation, else the one that its fence names."""
        del root
        fences = {g: name for g, name in self.fences.get(job_id, {}).items() if g < generation}
        if not fences:
            return None
        newest = max(fences)
        steps = [step for g, step in self.manifests.get(job_id, []) if g == newest]
        if steps:
            return ManifestInfo(_name(newest, max(steps)), max(steps), 1)
        named = fences[newest]
        return None if named is None else ManifestInfo(named, _step(named), 1)

    def find(self, root: Path, job_id: str, name: str) -> ManifestInfo | None:
        del root
        known = {_name(*entry) for entry in self.manifests.get(job_id, [])}
        return ManifestInfo(name, _step(name), 1) if name in known else None

    def fence(self, root: Path, job_id: str, generation: int, manifest: str | None) -> None:
        del root
        existing = self.fences.setdefault(job_id, {}).setdefault(generation, manifest)
        if existing != manifest:
            raise ValueError(f"generation {generation} of {job_id} was fenced at {existing}, not {manifest}")

    def fenced(self, root: Path, job_id: str) -> int:
        del root
        return max(self.fences.get(job_id, {}), default=0)

    def commit(self, job_id: str, generation: int, step: int) -> bool:
        """What a trainer does: refused (False) once a newer generation is fenced."""
        if self.fenced(Path(), job_id) != generation:
            return False
        entries = self.manifests.setdefault(job_id, [])
        if (generation, step) not in entries:
            entries.append((generation, step))
        return True


@dataclass
class _Trainer:
    """One run on one machine. `at_s` is the wall instant up to which it has been simulated."""

    run_id: str
    token: str
    at_s: float
    state: TrainerState = "starting"
    ready_s: float = 0.0
    spec: RunSpec | None = None
    step: float = 0.0
    start_step: int = 0
    saved_step: int = 0
    saved_s: float = 0.0
    manifest: str | None = None
    hold_until_s: float | None = None
    stop: bool = False


class SimSite:
    """Implements orchestrator.engine.runtime.Runtime."""

    def __init__(self, cloud: FakeCloud, clock: Clock, catalog: SimCatalog, pace: Pace | None = None) -> None:
        self._cloud = cloud
        self._clock = clock
        self._catalog = catalog
        self._pace = pace or Pace()
        self._trainers: dict[str, _Trainer] = {}

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
            trainer.spec = spec
            trainer.state = "starting"
            trainer.ready_s = self._clock.monotonic_s() + self._pace.restore_s

    def reports(self, run_ids: Sequence[str]) -> Mapping[str, RunReport]:
        return {run_id: self._report(run_id) for run_id in run_ids}

    def hold(self, run_id: str) -> None:
        if run_id in self._trainers:
            self._trainers[run_id].hold_until_s = self._clock.monotonic_s() + HOLD_S

    def unhold(self, run_id: str) -> None:
        if run_id in self._trainers:
            self._trainers[run_id].hold_until_s = None

    def stop(self, run_id: str) -> None:
        if run_id in self._trainers:
            self._trainers[run_id].stop = True

    def kill(self, run_id: str) -> None:
        self._trainers.pop(run_id, None)

    def close(self) -> None:
        """Nothing to let go of."""

    # -- the trainers -------------------------------------------------------------------------------------------------
    def _report(self, run_id: str) -> RunReport:
        trainer = self._trainers.get(run_id)
        if trainer is None or trainer.token not in self.nodes():
            return RunReport(run_id, "absent")
        self._advance(trainer)
        total = trainer.spec.trainer["steps"] if trainer.spec is not None else None
        return RunReport(
            run_id,
            trainer.state,
            step=int(trainer.step),
            total_steps=total if isinstance(total, int) else None,
            loss=1.0 / (1.0 + trainer.step),
            step_wall_s=self._pace.step_s / self._throttle(trainer),
            start_step=trainer.start_step,
            manifest=trainer.manifest,
            manifest_step=trainer.saved_step,
            useful_s=(int(trainer.step) - trainer.start_step) * self._pace.step_s,
            weights_hash=f"{trainer.spec.job_id}@{int(trainer.step)}"
            if trainer.state == "finished" and trainer.spec
            else None,
        )

    def _advance(self, trainer: _Trainer) -> None:
        """Bring one trainer from where it was last looked at to now."""
        now = self._clock.monotonic_s()
        spec = trainer.spec
        if trainer.state == "starting" and now >= trainer.ready_s:
            if spec is None:
                trainer.state = "prepared"
            else:
                manifest = spec.trainer["manifest"]
                trainer.manifest = manifest if isinstance(manifest, str) else None
                trainer.start_step = _step(trainer.manifest) if trainer.manifest else 0
                trainer.step, trainer.saved_step = float(trainer.start_step), trainer.start_step
                trainer.state, trainer.at_s, trainer.saved_s = "restored", now, now
        if spec is None:
            return
        fenced = self._catalog.fenced(Path(), spec.job_id)
        if trainer.state in ("restored", "training", "holding") and fenced > spec.generation:
            trainer.state = "fenced"
        if trainer.state == "restored" and fenced == spec.generation:
            trainer.state, trainer.at_s, trainer.saved_s = "training", now, now
        if trainer.state == "holding":
            if trainer.stop:
                trainer.state = "yielded"
            elif trainer.hold_until_s is None or now >= trainer.hold_until_s:
                trainer.state, trainer.at_s = "training", now
        if trainer.state == "training":
            self._train(trainer, spec, now)

    def _train(self, trainer: _Trainer, spec: RunSpec, now: float) -> None:
        steps = spec.trainer["steps"]
        assert isinstance(steps, int)
        instance = next(i for i in self._cloud.instances() if i.token == trainer.token)
        trainer.step = min(
            float(steps), trainer.step + (now - trainer.at_s) * self._throttle(trainer) / self._pace.step_s
        )
        trainer.at_s = now
        asked = trainer.stop or trainer.hold_until_s is not None or instance.notice_deadline_ms is not None
        done = trainer.step >= steps
        if asked or done or now - trainer.saved_s >= self._pace.checkpoint_every_s:
            step = int(trainer.step)
            if not self._catalog.commit(spec.job_id, spec.generation, step):
                trainer.state = "fenced"
                return
            trainer.step, trainer.saved_step, trainer.saved_s = float(step), step, now
            trainer.manifest = _name(spec.generation, step)
        if done:
            trainer.state = "finished"
        elif trainer.stop or instance.notice_deadline_ms is not None:
            trainer.state = "yielded"
        elif trainer.hold_until_s is not None:
            trainer.state = "holding"

    def _throttle(self, trainer: _Trainer) -> float:
        throttle = trainer.spec.trainer["throttle"] if trainer.spec is not None else 1.0
        return throttle if isinstance(throttle, float) else 1.0


def _name(generation: int, step: int) -> str:
    return f"{generation}-{step}-1"


def _step(name: str) -> int:
    return int(name.split("-")[1])
